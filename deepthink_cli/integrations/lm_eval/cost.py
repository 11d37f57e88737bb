"""What a task costs whose demonstrations differ from row to row, estimated before anything is read."""

from __future__ import annotations

from collections.abc import Sequence

from deepthink_cli.integrations.lm_eval.requests import Group, Request

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
