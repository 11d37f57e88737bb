"""Requests of the harness by their context: the tokens of one memory, and the queries that follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError
from deepthink_cli.integrations.lm_eval.contexts import SplitContext

if TYPE_CHECKING:
    from deepthink_cli.model.tokens import TokenizedQuery

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """A prompt and its continuation as the harness tokenises them, cut on the left to what the model holds.

    `start` tokens of the prompt are its context, whose text is `text`; `cut` tokens before them were removed. `moved`
    says that the context ends before the end of its text, since a token holds characters of context and query.
    `where` names the task and its row in messages.
    """

    prompt: Ids
    continuation: Ids = ()
    start: int = 0
    text: str = ""
    cut: int = 0
    moved: bool = False
    task: str = ""
    where: str = ""

    @property
    def fed(self) -> int:
        """The tokens that the network reads: all but the last one of the continuation."""
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
    from deepthink_cli.model.tokens import common_length

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
    moved = shared < len(alone)
    return Request(
        tuple(prompt[cut:]), tuple(continuation), start, context.context, cut, moved, context.where[0], context.place
    )


def grouped(requests: Sequence[Request]) -> list[Group]:
    """The requests by their context: one group, and so one memory, for each distinct context."""
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
