"""Requests of the harness by their context, and their answers after its memory: scores, and texts that are written."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.plugins.harnesses.lm_eval.contexts import SplitContext
from deepthink_cli.plugins.harnesses.lm_eval.memories import Memories

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.decoding import Decoding
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.tokens import TokenizedQuery
    from deepthink_cli.plugins.harnesses.lm_eval.model import DeepThinkLM

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """A prompt and its continuation as the harness tokenises them, cut on the left to the model's length.

    `start` tokens of the prompt are its context, whose text is `text`; `cut` tokens before them were removed. `where`
    names the task and its row in messages.
    """

    prompt: Ids
    continuation: Ids = ()
    start: int = 0
    text: str = ""
    cut: int = 0
    task: str = ""
    where: str = ""

    @property
    def fed(self) -> int:
        """The tokens that the network reads: all but the last token of the continuation."""
        return len(self.prompt) + max(0, len(self.continuation) - 1)


@dataclass
class Group:
    """Requests whose prompts begin with the same context; `start` tokens of it are common to all of them."""

    text: str
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
    return Request(
        tuple(prompt[cut:]), tuple(continuation), start, context.context, cut, context.where[0], context.place
    )


def grouped(requests: Sequence[Request]) -> list[Group]:
    """The requests by their context: a group, with its own memory, for each distinct context."""
    groups: dict[tuple[str, int], Group] = {}
    for number, request in enumerate(requests):
        key = (request.text, request.cut) if request.start else ("", 0)
        group = groups.setdefault(key, Group(key[0], request.start))
        group.start = min(group.start, request.start)
        group.numbers.append(number)
    return list(groups.values())


def queries_of(requests: Sequence[Request], group: Group) -> tuple[list[TokenizedQuery], list[tuple[int, int]]]:
    """The queries of a group, each with all of its continuations, and the (query, candidate) of every request."""
    from deepthink_cli.model.tokens import TokenizedQuery

    answers: dict[Ids, dict[Ids, int]] = {}
    wheres: dict[Ids, str] = {}
    places: list[tuple[Ids, int]] = []
    for number in group.numbers:
        request = requests[number]
        prefix = request.prompt[group.start :]
        candidates = answers.setdefault(prefix, {})
        wheres.setdefault(prefix, request.where)
        places.append((prefix, candidates.setdefault(request.continuation, len(candidates))))
    queries = [TokenizedQuery(prefix, tuple(candidates), wheres[prefix]) for prefix, candidates in answers.items()]
    numbers = {prefix: number for number, prefix in enumerate(answers)}
    return queries, [(numbers[prefix], candidate) for prefix, candidate in places]


FEW = 3  # contexts of a task that are not worth a warning


def tell_contexts(requests: Sequence[Request], groups: Sequence[Group], iterations: int) -> None:
    """Log how many contexts each task has: a warning if most prompts have one of their own, or none has any."""
    contexts: dict[str, set[int]] = {}  # of a task: the numbers of its groups
    prompts: dict[str, set[Ids]] = {}
    for number, group in enumerate(groups):
        for request in (requests[each] for each in group.numbers):
            contexts.setdefault(request.task, set()).update([number] if group.start else [])
            prompts.setdefault(request.task, set()).add(request.prompt)
    for task, of_task in prompts.items():
        count, others = len(contexts[task]), len(of_task)
        told = f"task {task}: {count} distinct contexts for {others} prompts, each read {iterations} times"
        if not count:
            logger.warning(f"task {task}: nothing precedes its queries: T = {iterations} has no effect")
        elif count > FEW and 2 * count >= others:
            logger.warning(f"{told}; demonstrations=fixed draws them once")
        else:
            logger.info(told)


logger = logging.getLogger("lm_eval.models.deepthink")


def likelihoods(memories: Memories, requests: Sequence[Request], quiet: bool = False) -> list[tuple[float, bool]]:
    """For every request, the log-probability of its continuation in nats, and whether greedy decoding writes it.

    Raises InputError, before anything is read, for a context or a prompt that is too long for the model.
    """
    from tqdm import tqdm

    groups = checked_groups(memories, requests)
    results = [(0.0, False)] * len(requests)
    with tqdm(total=len(requests), disable=quiet, desc=f"Scoring, T = {memories.method.iterations}") as bar:
        for group in groups:
            memory = memory_of(memories, requests, group)
            queries, places = queries_of(requests, group)
            scored = _scored(memories.engine, memory, queries)
            for number, (query, candidate) in zip(group.numbers, places, strict=True):
                results[number] = scored[query][candidate]
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
            memories.check(group.start, longest.where)
        most = limits.max_tokens()
        if most is not None and longest.fed > most:
            raise InputError(
                f"{longest.where}: too long: {longest.fed} tokens, {memories.engine.identity.id} holds {most} "
                f"({limits.reason()}); set --model_args max_length={most}"
            )
    if memories.method.iterations > 1:
        tell_contexts(requests, groups, memories.method.iterations)
    return groups


def memory_of(memories: Memories, requests: Sequence[Request], group: Group) -> Memory | None:
    """The memory of a group's context; None without a context."""
    ids = requests[group.numbers[0]].prompt[: group.start]
    return memories.get(ids, group.text) if ids else None


MAX_NEW = 256  # tokens that the harness's own model writes where a task does not say
_OF_SAMPLING = {"top_k", "min_p", "typical_p"}  # without effect on greedy decoding
_NEUTRAL: dict[str, Any] = {"num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "use_cache": True}


def generated(
    model: DeepThinkLM, contexts: Sequence[SplitContext], options: Sequence[Mapping[str, Any]], quiet: bool
) -> list[str]:
    """What the model writes after every prompt, by the generation arguments of its task.

    Raises InputError for arguments that are not supported, and for a prompt that is too long.
    """
    from tqdm import tqdm

    from deepthink_cli.engine.decoding import Prompt
    from deepthink_cli.generation import continuations

    wanted = [_wanted(model, *each) for each in zip(contexts, options, strict=True)]
    requests = [_request(model, *each) for each in zip(contexts, wanted, strict=True)]
    texts = [""] * len(requests)
    with tqdm(total=len(requests), disable=quiet, desc=f"Generating, T = {model.memories.method.iterations}") as bar:
        for group in checked_groups(model.memories, requests):
            memory = memory_of(model.memories, requests, group)
            by_wanted: dict[Decoding, list[int]] = {}
            for number in group.numbers:
                by_wanted.setdefault(wanted[number], []).append(number)
            for each, numbers in by_wanted.items():
                prompts = [Prompt(requests[n].prompt[group.start :], n, requests[n].where) for n in numbers]
                written = continuations(model.engine, memory, prompts, each)
                for number, continuation in zip(numbers, written, strict=True):
                    texts[number] = _text(model, continuation.token_ids, each.stop or ())
                bar.update(len(numbers))
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


def _text(model: DeepThinkLM, ids: Sequence[int], stop: Sequence[str]) -> str:
    from lm_eval.models.utils import postprocess_generated_text

    text = model.tokenizer.decode(list(ids), skip_special_tokens=True)
    return str(postprocess_generated_text(generation=text, stop=list(stop), think_end_token=None))
