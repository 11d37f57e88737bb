"""Requests by their context, the memory of each context, and their answers after it: scores, and written texts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.method import Method
from deepthink_cli.plugins.harnesses.lm_eval.contexts import SplitContext

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.decoding import Decoding
    from deepthink_cli.generation import Continuation
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.tokens import TokenizedQuery
    from deepthink_cli.plugins.harnesses.lm_eval.model import DeepThinkLM

Ids = tuple[int, ...]
logger = logging.getLogger("lm_eval.models.deepthink")  # the harness shows the logs of its own modules


@dataclass
class Memories:
    """Memories of contexts, of which the last is held; `readings` counts the contexts that were read."""

    engine: Engine
    method: Method
    readings: int = 0
    _last: tuple[Ids, Memory] | None = None

    def get(self, ids: Ids, text: str) -> Memory:
        """The memory of a context with these tokens, ready for scoring; `text` is the context. Raises as `think`."""
        from deepthink_cli.data.examples import Example
        from deepthink_cli.data.template import Template
        from deepthink_cli.provenance import TokenizedDemonstrations
        from deepthink_cli.thinking import think

        if self._last is None or self._last[0] != ids:
            self._last = None  # before the next one is made, which needs the space
            whole = TokenizedDemonstrations((Example(text, ""),), Template("{context}{query}", ""), (), token_ids=ids)
            *_, memory = think(self.engine, whole, self.method)
            self.readings += 1
            self._last = ids, self.engine.place(memory)
        return self._last[1]

    def check(self, tokens: int, where: str) -> None:
        """Raise InputError, naming the request, unless T readings of a context of so many tokens fit the model."""
        limits, positions, iterations = self.engine.limits, self.method.positions, self.method.iterations
        if positions == "restarted" and limits.relative:
            raise InputError(
                f"positions=restarted: {self.engine.identity.id} has no positions to restart: they follow from the "
                "number of earlier tokens; use positions=continued"
            )
        if limits.holds(tokens, positions, iterations):
            return
        readings = "2L tokens from the second reading on" if iterations > 1 else "L tokens"
        raise InputError(
            f"{where}: its context is too long: L = {tokens} tokens, {self.engine.identity.id} holds "
            f"{limits.largest(positions, iterations)} ({readings}); use a smaller --num_fewshot, "
            "positions=restarted or iterations=1"
        )


@dataclass(frozen=True)
class Request:
    """A prompt and its continuation as the harness tokenises them, cut on the left to the model's length.

    `start` tokens of the prompt are its context; `cut` tokens before them were removed.
    """

    context: SplitContext
    prompt: Ids
    continuation: Ids
    start: int
    cut: int

    @property
    def fed(self) -> int:
        """The tokens that the network reads: all but the last token of the continuation."""
        return len(self.prompt) + max(0, len(self.continuation) - 1)


@dataclass
class Group:
    """The numbers of requests whose prompts begin with the same context; `start` tokens of it are common to all."""

    start: int
    numbers: list[int] = field(default_factory=list)


def request_of(
    context: SplitContext, alone: Sequence[int], prompt: Sequence[int], continuation: Sequence[int], most: int
) -> Request:
    """A request with at most `most` tokens before its last one, cut as the harness's own model cuts it.

    `alone` are the ids of the context; it ends at the last token that it shares with the prompt. Raises InputError for
    a continuation with more tokens than the model holds.
    """
    from deepthink_cli.model.boundary import common_length

    if not prompt:
        raise InputError(f"{context.place}: its prompt has no tokens; leave the task out")
    cut = max(0, len(prompt) + max(1, len(continuation)) - most - 1)
    if cut >= len(prompt):
        raise InputError(
            f"{context.place}: the continuation has {len(continuation)} tokens, the model holds {most}; "
            "leave the task out"
        )
    shared = common_length(alone, prompt)
    # The last token of the prompt predicts the continuation, so it belongs to the query.
    start = max(0, min(shared, len(prompt) - 1) - cut)
    return Request(context, tuple(prompt[cut:]), tuple(continuation), start, cut)


def grouped(requests: Sequence[Request]) -> list[Group]:
    """The requests by their context: a group, with its own memory, for each distinct context."""
    groups: dict[tuple[str, int], Group] = {}
    for number, request in enumerate(requests):
        key = (request.context.context, request.cut) if request.start else ("", 0)
        group = groups.setdefault(key, Group(request.start))
        group.start = min(group.start, request.start)
        group.numbers.append(number)
    return list(groups.values())


FEW = 3  # contexts of a task that are not worth a warning


def tell_contexts(requests: Sequence[Request], groups: Sequence[Group], iterations: int) -> None:
    """Log how many contexts each task has: a warning if most prompts have one of their own, or none has any."""
    found: dict[str, tuple[set[int], set[Ids]]] = {}  # of a task: the numbers of its groups, and its prompts
    for number, group in enumerate(groups):
        for request in (requests[each] for each in group.numbers):
            contexts, prompts = found.setdefault(request.context.where[0], (set(), set()))
            contexts.update([number] if group.start else [])
            prompts.add(request.prompt)
    for task, (contexts, prompts) in found.items():
        count, others = len(contexts), len(prompts)
        told = f"task {task}: {count} distinct contexts for {others} prompts, each read {iterations} times"
        if not count:
            logger.warning(f"task {task}: nothing precedes its queries: T = {iterations} has no effect")
        elif count > FEW and 2 * count >= others:
            logger.warning(f"{told}; demonstrations=fixed draws them once")
        else:
            logger.info(told)


def likelihoods(memories: Memories, requests: Sequence[Request], quiet: bool = False) -> list[tuple[float, bool]]:
    """For every request, the log-probability of its continuation in nats, and whether greedy decoding writes it.

    Raises InputError, before anything is read, for a context or a prompt that is too long for the model.
    """
    from tqdm import tqdm

    from deepthink_cli.model.tokens import TokenizedQuery

    groups = checked_groups(memories, requests)
    results = [(0.0, False)] * len(requests)
    with tqdm(total=len(requests), disable=quiet, desc=f"Scoring, T = {memories.method.iterations}") as bar:
        for group in groups:
            by_prefix: dict[Ids, list[int]] = {}
            for number in group.numbers:
                by_prefix.setdefault(requests[number].prompt[group.start :], []).append(number)
            queries = [
                TokenizedQuery(
                    prefix,
                    tuple(dict.fromkeys(requests[number].continuation for number in numbers)),
                    requests[numbers[0]].context.place,
                )
                for prefix, numbers in by_prefix.items()
            ]
            scored = _scored(memories.engine, memory_of(memories, requests, group), queries)
            for query, of_query, numbers in zip(queries, scored, by_prefix.values(), strict=True):
                of_answer = dict(zip(query.answers, of_query, strict=True))
                for number in numbers:
                    results[number] = of_answer[requests[number].continuation]
            bar.update(len(group.numbers))
    return results


def _scored(engine: Engine, memory: Memory | None, queries: Sequence[TokenizedQuery]) -> list[list[tuple[float, bool]]]:
    """The score of each candidate of each query, and whether greedy decoding writes it.

    Raises NotFiniteError for scores that are NaN or infinite.
    """
    from deepthink_cli.scoring.likelihood import check_finite
    from deepthink_cli.scoring.pipeline import EVALUATED

    found = []
    for start in range(0, len(queries), EVALUATED):
        plan = engine.plan(queries[start : start + EVALUATED])
        observed = engine.observe(memory, plan, greedy=True)
        check_finite(engine, plan, [each.sums for each in observed])
        found += [list(zip(each.sums, each.greedy, strict=True)) for each in observed]
    return found


def checked_groups(memories: Memories, requests: Sequence[Request]) -> list[Group]:
    """The requests by their context, whose number is told; raises as `likelihoods` does."""
    groups, limits = grouped(requests), memories.engine.limits
    for group in groups:
        longest = max((requests[number] for number in group.numbers), key=lambda request: request.fed)
        if group.start:
            memories.check(group.start, longest.context.place)
        most = limits.max_tokens()
        if most is not None and longest.fed > most:
            raise InputError(
                f"{longest.context.place}: too long: {longest.fed} tokens, {memories.engine.identity.id} holds {most} "
                f"({limits.reason()}); set --model_args max_length={most}"
            )
    if memories.method.iterations > 1:
        tell_contexts(requests, groups, memories.method.iterations)
    return groups


def memory_of(memories: Memories, requests: Sequence[Request], group: Group) -> Memory | None:
    """The memory of a group's context; None without a context."""
    first = requests[group.numbers[0]]
    return memories.get(first.prompt[: group.start], first.context.context) if group.start else None


def written(
    memories: Memories, requests: Sequence[Request], wanted: Sequence[Decoding], quiet: bool = False
) -> list[Continuation]:
    """What the model writes after every prompt; raises as `likelihoods` does."""
    from tqdm import tqdm

    from deepthink_cli.engine.decoding import Prompt
    from deepthink_cli.generation import continuations

    found: dict[int, Continuation] = {}
    with tqdm(total=len(requests), disable=quiet, desc=f"Generating, T = {memories.method.iterations}") as bar:
        for group in checked_groups(memories, requests):
            memory = memory_of(memories, requests, group)
            by_wanted: dict[Decoding, list[int]] = {}
            for number in group.numbers:
                by_wanted.setdefault(wanted[number], []).append(number)
            for decoding, numbers in by_wanted.items():
                prompts = [Prompt(requests[n].prompt[group.start :], n, requests[n].context.place) for n in numbers]
                found |= zip(numbers, continuations(memories.engine, memory, prompts, decoding), strict=True)
                bar.update(len(numbers))
    return [found[number] for number in range(len(requests))]


MAX_NEW = 256  # tokens that the harness's own model writes where a task does not say
_OF_SAMPLING = {"top_k", "min_p", "typical_p"}  # without effect on greedy decoding
_NEUTRAL: dict[str, Any] = {"num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "use_cache": True}


def generated(
    model: DeepThinkLM, contexts: Sequence[SplitContext], options: Sequence[Mapping[str, Any]], quiet: bool
) -> list[str]:
    """What the model writes after every prompt, by the generation arguments of its task.

    Raises InputError for arguments that are not supported, and for a prompt that is too long.
    """
    from lm_eval.models.utils import postprocess_generated_text

    wanted = [_wanted(model, *each) for each in zip(contexts, options, strict=True)]
    requests = [_request(model, *each) for each in zip(contexts, wanted, strict=True)]
    texts = []
    for decoding, continuation in zip(wanted, written(model.memories, requests, wanted, quiet), strict=True):
        text = model.tokenizer.decode(list(continuation.token_ids), skip_special_tokens=True)
        stop = list(decoding.stop or ())
        texts.append(str(postprocess_generated_text(generation=text, stop=stop, think_end_token=None)))
    return texts


def _wanted(model: DeepThinkLM, context: SplitContext, options: Mapping[str, Any]) -> Decoding:
    from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

    from deepthink_cli.engine.decoding import Decoding

    values: dict[str, Any] = {**normalize_gen_kwargs(dict(options), MAX_NEW)}
    end = model.tokenizer.decode([model.eot_token_id], skip_special_tokens=False)
    stop = tuple(filter(None, handle_stop_sequences(list(values.pop("until")), eos=end)))
    new = values.pop("max_gen_toks")
    sampled = bool(values.pop("do_sample"))
    temperature, top_p = float(values.pop("temperature", 0.0)), float(values.pop("top_p", 1.0))
    for name, value in values.items():
        if _NEUTRAL.get(name, ...) != value and (sampled or name not in _OF_SAMPLING):
            raise InputError(
                f"task {context.where[0]}: generation argument {name}={value} is not supported; "
                "texts are written greedily, or sampled with temperature and top_p"
            )
    return Decoding.checked(
        temperature=temperature if sampled else 0.0, top_p=top_p if sampled else 1.0, max_new_tokens=new, stop=stop
    )


def _request(model: DeepThinkLM, context: SplitContext, wanted: Decoding) -> Request:
    """The prompt, cut on the left so that the new tokens fit the model."""
    remaining = model.max_length - wanted.max_new_tokens
    task = context.where[0]
    if remaining < 1:
        raise InputError(
            f"task {task}: {wanted.max_new_tokens} new tokens, the model holds {model.max_length}; "
            "use --gen_kwargs max_gen_toks=N with a smaller N"
        )
    prompt = model.prompt_ids(context) or [model.prefix_token_id]
    alone = model.prompt_ids(context.context) if context.start else []
    return request_of(context, alone, prompt, (), remaining)
