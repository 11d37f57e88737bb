"""The model of lm-evaluation-harness: `--model deepthink`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, installing
from deepthink_cli.model.options import POCKET, TOY
from deepthink_cli.plugins.harnesses.lm_eval import contexts as chats
from deepthink_cli.plugins.harnesses.lm_eval import tasks
from deepthink_cli.plugins.harnesses.lm_eval.arguments import Arguments, device_of
from deepthink_cli.plugins.harnesses.lm_eval.contexts import NO_RESPONSE_CACHE, SplitContext
from deepthink_cli.plugins.harnesses.lm_eval.memories import Memories
from deepthink_cli.plugins.harnesses.lm_eval.requests import Request, generated, likelihoods, request_of


def model_info(model: DeepThinkLM) -> dict[str, Any]:
    """The fields of `config` in the harness's results, as JSON values."""
    from deepthink_cli.artifact.metadata import rule_as_json

    identity, method = model.engine.identity, model.arguments.method
    return {
        "model_dtype": identity.dtype,
        "model_revision": identity.revision or "",
        "model_sha": identity.revision or "",
        "deepthink": {
            "version": version("deepthink-cli"),
            "iterations": method.iterations,
            **rule_as_json(method.update),
            "positions": method.positions,
            "model": identity.id,
            "weights_sha256": identity.weights_sha256,
            "tokenizer_sha256": identity.tokenizer_sha256,
            "engine": model.engine.description,
            "demonstrations": model.arguments.harness.demonstrations,
            "readings": model.memories.readings,
            "memories_loaded": model.memories.loaded,
            "moved_boundaries": model.moved,
        },
    }


try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import resolve_max_length
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as error:
    raise ImportError(f"lm-eval is not installed; {installing('lm-eval')}") from error

if TYPE_CHECKING:
    from deepthink_cli.events import Event

logger = logging.getLogger("lm_eval.models.deepthink")  # the harness shows the logs of its own modules


@dataclass(frozen=True)
class _Call:
    """What the base class of the harness's models reads of a request."""

    args: tuple[str, str]


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
        from deepthink_cli.engine.opening import describe_engine, find_model, load
        from deepthink_cli.events import Warn

        super().__init__()
        self.arguments = Arguments.checked({**arguments, "pretrained": pretrained, "device": device_of(device)})
        options, method = self.arguments.harness, self.arguments.method
        spec = find_model(self.arguments.model, _log)
        if spec.id == POCKET:
            _log(Warn(f"{TOY}; name a real model as pretrained"))
        self.engine = load(spec, _log)
        describe_engine(self.engine, _log)
        self.tokenizer: Any = options.tokenizer_of(spec)
        self.max_length: int = options.max_length or resolve_max_length(spec.config, self.tokenizer)
        self.memories = Memories(self.engine, method, options.memories, options.keep)
        self.moved = 0  # requests whose context ends before the end of its text
        self._prepared: set[str] = set()
        self._encoded = lru_cache(maxsize=256)(self._encode)
        self._before = lru_cache(maxsize=256)(self._write)

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return self.tokenizer.eos_token_id  # type: ignore[no-any-return]

    @property
    def prefix_token_id(self) -> int:
        """The token before a continuation without a context: as the harness's own model, BOS or else EOS."""
        own, tokenizer = self.arguments.harness.prefix_token_id, self.tokenizer
        if own is not None:
            return own
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
        return list(self._encoded(str(string), add_special_tokens))

    def _encode(self, text: str, special: bool | None) -> tuple[int, ...]:
        if special is None:
            special = self.arguments.harness.add_bos_token
            prefix = self.prefix_token_id
            if prefix is not None and text.startswith(self.tokenizer.decode(prefix)):
                special = False
        return tuple(self.tokenizer.encode(text, **({} if special is None else {"add_special_tokens": special})))

    def prepare(self, tasks_by_name: Mapping[str, tasks.Task]) -> None:
        """Make the prompts of tasks carry their split, and fix their demonstrations if that was asked for."""
        fixed = self.arguments.harness.demonstrations == "fixed"
        for name, task in tasks_by_name.items():
            if fixed:
                tasks.fix_demonstrations(task)
                tasks.refuse_cached_prompts(task)
            tasks.carry_splits(task, self)
            self._prepared.add(name)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """The log-probability in nats of every continuation, and whether greedy decoding writes it."""
        contexts = self._split(requests)
        continuations = [request.args[1] for request in requests]
        calls = [_Call(pair) for pair in zip(contexts, continuations, strict=True)]
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
            described.append(self._request(context, prompt, continuation))
        return likelihoods(self.memories, described, disable_tqdm)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """The log-probability in nats of whole texts, which have no context: T has no effect."""
        windows, owners = [], []
        for number, request in enumerate(requests):
            whole = SplitContext(request.args[0], 0, _where(request))
            parts = get_rolling_token_windows(
                self.tok_encode(whole), self.prefix_token_id, self.max_length, context_len=1
            )
            for context, continuation in map(make_disjoint_window, parts):
                windows.append(Request(tuple(context), tuple(continuation), task=whole.where[0], where=whole.place))
                owners.append(number)
        sums = [0.0] * len(requests)
        for owner, (value, _) in zip(owners, likelihoods(self.memories, windows, disable_tqdm), strict=True):
            sums[owner] += value
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after every prompt, up to the task's stop strings."""
        contexts = self._split(requests)
        return generated(self, contexts, [dict(request.args[1]) for request in requests], disable_tqdm)

    def apply_chat_template(self, chat_history: chats.Turns, add_generation_prompt: bool = True) -> str:
        """A conversation as the tokenizer's chat template writes it."""
        return self._before(_hashable(chat_history), add_generation_prompt)

    def split_turns(self, turns: chats.Turns, written: str) -> str:
        """A written conversation, split before its query."""
        return chats.split_at_query(turns, written, lambda other: self._before(_hashable(other), True))

    def get_model_info(self) -> dict[str, Any]:
        """The record that the harness stores with the results: the method, the model's digests, and the readings."""
        return model_info(self)

    def _split(self, requests: Sequence[Any]) -> list[SplitContext]:
        """The prompts of all requests, each with its split and its place."""
        needs = self.arguments.harness.demonstrations == "fixed" or self.arguments.method.iterations > 1
        contexts = []
        for request in requests:
            prompt, where = request.args[0], _where(request)
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
        self._tell_contexts(contexts)
        return contexts

    def _tell_contexts(self, contexts: Sequence[SplitContext]) -> None:
        """Log how many contexts each task has, and that T has no effect on queries without a context."""
        if (iterations := self.arguments.method.iterations) == 1:
            return
        by_task: dict[str, set[str]] = {}
        for each in contexts:
            by_task.setdefault(each.where[0], set()).update([each.context] if each.start else [])
        for task, distinct in by_task.items():
            if distinct:
                logger.info(f"task {task}: distinct contexts: {len(distinct)}")
            else:
                logger.warning(f"task {task}: nothing precedes its queries: T = {iterations} has no effect")

    def _request(self, context: SplitContext, prompt: Sequence[int], continuation: Sequence[int]) -> Request:
        alone = self.tok_encode(context.context) if context.start else []
        request = request_of(context, alone, prompt, continuation, self.max_length)
        self.moved += request.moved
        return request

    def _write(self, turns: tuple[tuple[tuple[str, str], ...], ...], prompt: bool) -> str:
        """A conversation by the chat template; without its system prompt for templates that refuse one."""
        return chats.write(
            self.tokenizer, [dict(turn) for turn in turns], prompt, self.arguments.harness.enable_thinking
        )

    def prompt_ids(self, text: str) -> list[int]:
        """Token ids of a prompt to be continued, by the rules of the harness's own model."""
        special, bos = self.arguments.harness.add_bos_token, self.tokenizer.bos_token
        if bos is not None and text.startswith(bos):
            special = False
        options = {} if special is None else {"add_special_tokens": special}
        return list(self.tokenizer(str(text), **options)["input_ids"])


def _where(request: Any) -> tuple[str, int | None]:
    """The task and the row of a request."""
    return request.task_name or "without a name", request.doc_id


def _hashable(turns: chats.Turns) -> tuple[tuple[tuple[str, str], ...], ...]:
    return tuple(tuple(turn.items()) for turn in turns)


def _log(event: Event) -> None:
    """Log the events of the workflows, as the harness does."""
    from deepthink_cli.events import Note, Warn

    if isinstance(event, Note | Warn):
        logger.log(logging.WARNING if isinstance(event, Warn) else logging.INFO, event.text)
