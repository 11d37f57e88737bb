"""The model of lm-evaluation-harness: `--model deepthink`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, installing
from deepthink_cli.model.options import POCKET, TOY
from deepthink_cli.plugins.harnesses.lm_eval import contexts as chats
from deepthink_cli.plugins.harnesses.lm_eval import tasks
from deepthink_cli.plugins.harnesses.lm_eval.arguments import Arguments, device_of
from deepthink_cli.plugins.harnesses.lm_eval.contexts import NO_RESPONSE_CACHE, SplitContext
from deepthink_cli.plugins.harnesses.lm_eval.requests import Memories, generated, likelihoods, logger, request_of

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import resolve_max_length
except ImportError as error:
    raise ImportError(f"lm-eval is not installed; {installing('lm-eval')}") from error

if TYPE_CHECKING:
    from deepthink_cli.events import Event


class DeepThinkLM(TemplateLM):  # type: ignore[misc]  # the harness is not typed
    """A causal language model that reads the context of every prompt T times (section 3.1), for any task.

    The arguments are in `--model_args` (docs/elsewhere.md). With `iterations=1` the results equal those of the
    harness's own `hf` model with the same dtype. Raises InputError for wrong arguments, and as `load_model`.
    """

    def __init__(
        self,
        pretrained: str = "pocket",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        **arguments: Any,
    ) -> None:
        from deepthink_cli.engine.opening import find_model, load
        from deepthink_cli.events import Warn

        super().__init__()
        self.arguments = Arguments.checked({**arguments, "pretrained": pretrained, "device": device_of(device)})
        options, method = self.arguments.harness, self.arguments.method
        spec = find_model(self.arguments.model, _log)
        if spec.id == POCKET:
            _log(Warn(f"{TOY}; name a real model as pretrained"))
        self.engine = load(spec, _log)
        self.tokenizer: Any = options.tokenizer_of(spec)
        self.max_length: int = options.max_length or resolve_max_length(spec.config, self.tokenizer)
        self.memories = Memories(self.engine, method)
        self._prepared: set[str] = set()

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return self.tokenizer.eos_token_id  # type: ignore[no-any-return]

    @property
    def prefix_token_id(self) -> int:
        """The token before a continuation without a context: as the harness's own model, BOS or else EOS."""
        tokenizer = self.tokenizer
        return tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id  # type: ignore[no-any-return]

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer in the keys of the harness's cache of prompts."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def set_cache_hook(self, cache_hook: object) -> None:
        """Raise InputError: the harness's cache of responses would mix the numbers of different T and eta."""
        raise InputError(NO_RESPONSE_CACHE)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids of a text, by the rules of the harness's own model."""
        text, special = str(string), add_special_tokens
        if special is None:
            special = self.arguments.harness.add_bos_token
            prefix = self.prefix_token_id
            if prefix is not None and text.startswith(self.tokenizer.decode(prefix)):
                special = False
        return list(self.tokenizer.encode(text, **({} if special is None else {"add_special_tokens": special})))

    def prepare(self, tasks_by_name: Mapping[str, tasks.Task]) -> None:
        """Make the prompts of tasks carry their split, and fix their demonstrations if that was asked for."""
        fixed = self.arguments.harness.demonstrations == "fixed"
        for name, task in tasks_by_name.items():
            if fixed:
                tasks.fix_demonstrations(task)
            tasks.carry_splits(task, self)
            self._prepared.add(name)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """The log-probability in nats of every continuation, and whether greedy decoding writes it."""
        contexts = self._split(requests)
        continuations = [request.args[1] for request in requests]
        calls = [SimpleNamespace(args=pair) for pair in zip(contexts, continuations, strict=True)]
        return super().loglikelihood(calls, disable_tqdm=disable_tqdm)  # type: ignore[no-any-return]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[tuple[SplitContext, str], list[int], list[int]]], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """As `loglikelihood`, for requests that the base class has tokenised."""
        described = []
        for (context, text), prompt, continuation in requests:
            if not continuation:
                raise InputError(
                    f"{context.place}: continuation {text!r} has no tokens after its prompt; leave the task out"
                )
            alone = self.tok_encode(context.context) if context.start else []
            described.append(request_of(context, alone, prompt, continuation, self.max_length))
        return likelihoods(self.memories, described, disable_tqdm)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Raise InputError: whole texts have no demonstrations."""
        raise InputError("perplexity of whole texts: nothing precedes them to be read; use --model hf")

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after every prompt, up to the task's stop strings."""
        contexts = self._split(requests)
        return generated(self, contexts, [dict(request.args[1]) for request in requests], disable_tqdm)

    def apply_chat_template(self, chat_history: chats.Turns, add_generation_prompt: bool = True) -> str:
        """A conversation as the tokenizer's chat template writes it."""
        thinking = self.arguments.harness.enable_thinking
        return chats.write(self.tokenizer, chat_history, add_generation_prompt, thinking)

    def get_model_info(self) -> dict[str, Any]:
        """The record that the harness stores with the results: the method, the model's digests, and the readings."""
        from deepthink_cli.artifact.metadata import rule_as_json

        identity, method = self.engine.identity, self.arguments.method
        return {
            "model_dtype": identity.dtype,
            "model_sha": identity.revision or "",
            "deepthink": {
                "version": version("deepthink-cli"),
                "iterations": method.iterations,
                **rule_as_json(method.update),
                "positions": method.positions,
                "weights_sha256": identity.weights_sha256,
                "engine": self.engine.description,
                "demonstrations": self.arguments.harness.demonstrations,
                "readings": self.memories.readings,
            },
        }

    def _split(self, requests: Sequence[Any]) -> list[SplitContext]:
        """The prompts of all requests, each with its split and its place."""
        needs = self.arguments.harness.demonstrations == "fixed" or self.arguments.method.iterations > 1
        contexts = []
        for request in requests:
            prompt, where = request.args[0], (request.task_name or "without a name", request.doc_id)
            if needs and where[0] not in self._prepared:
                raise InputError(
                    f"task {where[0]}: with demonstrations=fixed or T > 1, tasks must be prepared before their prompts "
                    "are written; use `deepthink harness`, or run in the block of prepared_tasks()"
                )
            start = prompt.start if isinstance(prompt, SplitContext) else 0
            contexts.append(SplitContext(prompt, start, where))
            if prompt and not isinstance(prompt, SplitContext) and self.arguments.method.iterations > 1:
                raise InputError(
                    f"{contexts[-1].place}: its prompt does not end with its query, so that its context is unknown; "
                    "use iterations=1"
                )
        return contexts

    def prompt_ids(self, text: str) -> list[int]:
        """Token ids of a prompt to be continued, by the rules of the harness's own model."""
        special, bos = self.arguments.harness.add_bos_token, self.tokenizer.bos_token
        if bos is not None and text.startswith(bos):
            special = False
        options = {} if special is None else {"add_special_tokens": special}
        return list(self.tokenizer(str(text), **options)["input_ids"])


def _log(event: Event) -> None:
    """Log the events of the workflows, as the harness does."""
    from deepthink_cli.events import Note, Warn

    if isinstance(event, Note | Warn):
        logger.log(logging.WARNING if isinstance(event, Warn) else logging.INFO, event.text)
