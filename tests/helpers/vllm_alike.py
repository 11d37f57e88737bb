"""A stand-in for the module `vllm`: its requests are scored by our own engine after memories of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from deepthink_cli import load_model
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.vllm.settings import OFFERED

STARTED: list[str] = []  # the model of each engine that was started


@dataclass
class SamplingParams:
    """What is asked of the token after a prompt."""

    logprob_token_ids: Sequence[int]
    max_tokens: int
    temperature: float


class LLM:
    """A model whose requests carry the salt of a memory that is offered in this process."""

    def __init__(self, model: str, **settings: Any) -> None:
        assert settings["kv_transfer_config"]["kv_connector"] == "MemoryConnector"
        STARTED.append(model)
        self.engine = load_model(model, dtype=settings["dtype"])

    def generate(
        self, prompts: Sequence[Mapping[str, Any]], wanted: Sequence[SamplingParams], use_tqdm: bool
    ) -> list[Any]:
        """The answer to each prompt, with the log-probabilities that were asked for."""
        return [self._answer(prompt, one.logprob_token_ids) for prompt, one in zip(prompts, wanted, strict=True)]

    def _answer(self, prompt: Mapping[str, Any], ids: Sequence[int]) -> Any:
        memory = OFFERED[prompt["cache_salt"]]
        query = TokenizedQuery(tuple(prompt["prompt_token_ids"][memory.length :]), tuple((token,) for token in ids))
        ((scores,),) = self.engine.score([memory], self.engine.plan([query]))
        found = {token: SimpleNamespace(logprob=score) for token, score in zip(ids, scores, strict=True)}
        return SimpleNamespace(outputs=[SimpleNamespace(logprobs=[found], finish_reason="length")])
