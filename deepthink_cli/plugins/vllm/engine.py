"""`--engine vllm`: scores after memories that exist, computed by a vLLM in this process."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from deepthink_cli.engine.base import Engine, Past, Reading, ScoringPlan, Sums
from deepthink_cli.errors import DeepThinkError, InputError, installing, option
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.vllm.settings import check_computed, offer, transfer_config

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

Ids = tuple[int, ...]
MOST_IDS = 128  # whose log-probabilities vLLM gives in one request
# vLLM's core in this process, which hands it memories without files; stdout is for data.
_SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class VllmEngine(Engine):
    """Scores with vLLM, which loads the weights and is started by the first scores; reads no demonstrations.

    Raises DeepThinkError if vLLM is not installed, and InputError for a model that vLLM computes in another way.
    """

    name = "vllm"
    source = "https://docs.vllm.ai"
    description = "scores by vLLM"

    def __init__(self, spec: ModelSpec) -> None:
        if find_spec("vllm") is None:
            raise DeepThinkError.of("engine", self.name, f"vLLM is not installed; {installing('vllm')}")
        self._spec, self.identity = spec, spec.identify()
        self.tokenizer, self.limits = spec.tokenizer, spec.limits
        self._salts: dict[int, tuple[Memory, str]] = {}
        check_computed(self.identity, spec.id)

    @classmethod
    def of_spec(cls, spec: ModelSpec) -> VllmEngine:
        """The engine of a model whose weights are not loaded."""
        return cls(spec)

    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        """Raise InputError: vLLM reads no demonstrations after a history."""
        raise InputError.of(
            "engine",
            self.name,
            f"vLLM does not read demonstrations: use deepthink think {option('engine')} packed or padded "
            f"{option('keep')} 1,... for eval",
        )

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        """For each memory, the log-probability of every candidate of every query after it (Eq. 1 and 6), in nats."""
        return [self._sums(memory, plan.queries) for memory in memories]

    def score_after(self, pasts: Sequence[Past], plan: ScoringPlan) -> Sums:
        """Raise InputError: vLLM has whole memories."""
        raise InputError.of(
            "engine",
            self.name,
            f"vLLM serves whole memories; use {option('engine')} packed or padded with {option('nearest')}",
        )

    def _sums(self, memory: Memory, queries: Sequence[TokenizedQuery]) -> Sums:
        if id(memory) not in self._salts:
            self._salts[id(memory)] = (memory, offer(memory))
        shown, salt = memory.origin.demonstrations.token_ids, self._salts[id(memory)][1]
        asked = [(number, *node) for number, query in enumerate(queries) for node in nodes(query.answers)]
        starts = [[*shown, *queries[number].prefix, *path] for number, path, _ in asked]
        prompts = [{"prompt_token_ids": start, "cache_salt": salt} for start in starts]
        answers = self._log_probabilities(prompts, [following for _, _, following in asked])
        found: list[dict[Ids, float]] = [{} for _ in queries]
        for (number, path, _), answer in zip(asked, answers, strict=True):
            found[number].update({(*path, token): score for token, score in answer.items()})
        return [
            [sum(of_query[answer[:end]] for end in range(1, len(answer) + 1)) for answer in query.answers]
            for query, of_query in zip(queries, found, strict=True)
        ]

    def _log_probabilities(
        self, prompts: Sequence[Mapping[str, Any]], following: Sequence[Collection[int]]
    ) -> Iterator[dict[int, float]]:
        """The log-probability of each of some tokens after each prompt."""
        llm = self._llm  # before vLLM is imported by the next line: it sets vLLM's variables
        from vllm import SamplingParams

        wanted = [SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=list(ids)) for ids in following]
        for output, ids in zip(llm.generate(list(prompts), wanted, use_tqdm=False), following, strict=True):
            (answer,) = output.outputs
            if not answer.logprobs:
                raise DeepThinkError(f"vLLM ended a request with {answer.finish_reason}; its message says why")
            yield {token: answer.logprobs[0][token].logprob for token in ids}

    @cached_property
    def _llm(self) -> Any:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        from vllm import LLM

        options = self._spec.options
        return LLM(
            self._spec.source,
            revision=self._spec.revision,
            dtype=self.identity.dtype,
            trust_remote_code=options.trust_remote_code,
            enforce_eager=True,
            kv_transfer_config=transfer_config([]),
        )


def nodes(answers: Sequence[Ids]) -> Iterator[tuple[Ids, Ids]]:
    """The inner nodes of the tree of candidates: a path, and tokens that follow it, at most `MOST_IDS` at a time."""
    following: dict[Ids, dict[int, None]] = {}
    for answer in answers:
        for end, token in enumerate(answer):
            following.setdefault(answer[:end], {})[token] = None
    for path, tokens in following.items():
        for start in range(0, len(tokens), MOST_IDS):
            yield path, tuple(tokens)[start : start + MOST_IDS]
