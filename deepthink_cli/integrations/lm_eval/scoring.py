"""Score requests of lm-evaluation-harness after their memories, and what whole prompts would have cost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.integrations.lm_eval.memories import Memories
from deepthink_cli.integrations.lm_eval.requests import Group, Request, grouped, queries_of

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


FEW = 3  # contexts of a task that are not worth a warning


def cost_warnings(requests: Sequence[Request], groups: Sequence[Group], iterations: int) -> list[str]:
    """A warning, with the tokens to be read, for each task with a context of its own for at least half of its prompts.

    A reading after the first attends to twice as many tokens; the estimate counts tokens that are fed.
    """
    contexts: dict[str, dict[int, int]] = {}  # of a task: the tokens of each context, by its group
    prompts: dict[str, dict[tuple[int, ...], int]] = {}  # of a task: the tokens that plain scoring feeds
    for number, group in enumerate(groups):
        for request in (requests[each] for each in group.numbers):
            if group.start:
                contexts.setdefault(request.task, {})[number] = group.start
            longest = prompts.setdefault(request.task, {})
            longest[request.prompt] = max(longest.get(request.prompt, 0), request.fed)
    return [
        _warning(task, list(lengths.values()), list(prompts[task].values()), iterations)
        for task, lengths in contexts.items()
        if iterations > 1 and len(lengths) > FEW and 2 * len(lengths) >= len(prompts[task])
    ]


def _warning(task: str, contexts: Sequence[int], prompts: Sequence[int], iterations: int) -> str:
    plain = sum(prompts)
    ours = iterations * sum(contexts) + max(0, plain - sum(contexts))
    return (
        f"task {task}: {len(contexts)} distinct contexts for {len(prompts)} prompts, each read {iterations} times: "
        f"{ours:,} tokens, {ours / plain:.1f} times as many as plain scoring; demonstrations=fixed draws them once"
    )


logger = logging.getLogger("lm_eval.models.deepthink")


def likelihoods(memories: Memories, requests: Sequence[Request], quiet: bool = False) -> list[tuple[float, bool]]:
    """For every request, the log-probability of its continuation in nats, and whether greedy decoding writes it.

    Raises InputError, before anything is read, for a context or a prompt that is too long for the model.
    """
    from tqdm import tqdm

    from deepthink_cli.scoring import pipeline

    groups = checked_groups(memories, requests)
    results = [(0.0, False)] * len(requests)
    with tqdm(total=len(requests), disable=quiet, desc=f"Scoring, T = {memories.method.iterations}") as bar:
        for group in groups:
            memory = memory_of(memories, requests, group)
            queries, places = queries_of(requests, group)
            scored = pipeline.likelihoods(memories.engine, memory, queries)
            for number, (query, candidate) in zip(group.numbers, places, strict=True):
                results[number] = scored[query][candidate]
            bar.update(len(group.numbers))
    return results


def checked_groups(memories: Memories, requests: Sequence[Request], new: int = 0) -> list[Group]:
    """The requests by their context, with a warning for what is costly; raises as `likelihoods` does.

    `new` tokens are generated after every prompt.
    """
    groups, limits = grouped(requests), memories.engine.limits
    for group in groups:
        longest = max((requests[number] for number in group.numbers), key=lambda request: request.fed)
        if group.start:
            memories.check(group.start, longest.where)
        most = limits.max_tokens(group.start)
        if most is not None and longest.fed + new > most:
            raise InputError(
                f"{longest.where}: too long: {longest.fed + new} tokens, {memories.engine.identity.id} holds {most} "
                f"({limits.reason(group.start)}); set --model_args max_length={most - new}"
            )
    for warning in cost_warnings(requests, groups, memories.method.iterations):
        logger.warning(warning)
    return groups


def memory_of(memories: Memories, requests: Sequence[Request], group: Group) -> Memory | None:
    """The memory of a group's context; None without a context."""
    ids = requests[group.numbers[0]].prompt[: group.start]
    return memories.get(ids, group.text) if ids else None
