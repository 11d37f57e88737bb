"""The test stage: every candidate's log-probability after the memory and the query (Eq. 1 and 6).

Queries of similar length share a pass; their order, and how many there are, change no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from deepthink_cli.errors import InputError
from deepthink_cli.limits import Limits
from deepthink_cli.memory import Memory
from deepthink_cli.model import LanguageModel
from deepthink_cli.tokens import TokenizedQuery

_MEMORY_PER_PASS = 256 * 2**20  # bytes of keys and values that one pass may hold


@dataclass(frozen=True)
class Scores:
    """One query's candidates: `sums` are log-probabilities in nats, `means` the same per token."""

    sums: tuple[float, ...]
    means: tuple[float, ...]


@dataclass(frozen=True)
class _Line:
    """Tokens fed in one row (a candidate's last token never is) and the answers read off it."""

    fed: tuple[int, ...]
    query: int
    candidates: tuple[int, ...]


@torch.inference_mode()
def score(model: LanguageModel, memory: Memory, queries: Sequence[TokenizedQuery]) -> list[Scores]:
    """Score every query's candidates against one memory, in order.

    A candidate's score is the sum of the log-probabilities of its tokens, computed in float32; the
    query stands at positions L onward. Raises InputError where memory, query and candidate together
    are longer than the model holds.
    """
    for query in queries:
        check_length(model.limits, model.identity.id, memory.length, query)
    sums = [[0.0] * len(query.answers) for query in queries]
    lines = [line for number, query in enumerate(queries) for line in _lines(number, query)]
    lines.sort(key=lambda line: len(line.fed))
    for group in _groups(lines, memory, model):
        _score_group(model, memory, queries, group, sums)
    return [
        Scores(tuple(total), tuple(s / len(answer) for s, answer in zip(total, query.answers, strict=True)))
        for total, query in zip(sums, queries, strict=True)
    ]


def check_length(limits: Limits, model: str, length: int, query: TokenizedQuery, where: str = "") -> None:
    """Raise InputError unless a memory of `length` tokens, the query and its longest candidate fit together."""
    most = limits.most_tokens()
    needed = length + query.longest
    if most is not None and needed > most:
        raise InputError(
            f"{where or 'a query'}: too long: {query.longest} tokens after {length} of memory, {model} holds {most} "
            f"({limits.reason()}); shorten it or think about fewer demonstrations"
        )


def _lines(number: int, query: TokenizedQuery) -> Iterator[_Line]:
    """One line for each distinct sequence that must be fed; one-token candidates share the query's own."""
    fed: dict[tuple[int, ...], list[int]] = {}
    for candidate, answer in enumerate(query.answers):
        fed.setdefault(query.prefix + answer[:-1], []).append(candidate)
    for ids, candidates in fed.items():
        yield _Line(ids, number, tuple(candidates))


def _groups(lines: Sequence[_Line], memory: Memory, model: LanguageModel) -> Iterator[list[_Line]]:
    """Neighbouring lines whose copies of the memory, and their own tokens, fit the budget together."""
    per_token = memory.nbytes // memory.length * model.dtype.itemsize // 4
    group: list[_Line] = []
    for line in lines:
        if group and (len(group) + 1) * (memory.length + len(line.fed)) * per_token > _MEMORY_PER_PASS:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _score_group(
    model: LanguageModel, memory: Memory, queries: Sequence[TokenizedQuery], group: list[_Line], sums: list[list[float]]
) -> None:
    width = max(len(line.fed) for line in group)
    # Padding stands on the right, where no real token attends to it.
    ids = torch.tensor([line.fed + (0,) * (width - len(line.fed)) for line in group], device=model.device)
    asked = []  # (row, position, target, query, candidate)
    for row, line in enumerate(group):
        start = len(queries[line.query].prefix) - 1
        for candidate in line.candidates:
            answer = queries[line.query].answers[candidate]
            asked += [(row, start + n, token, line.query, candidate) for n, token in enumerate(answer)]
    table = torch.tensor(asked)  # (M, 5)
    places, inverse = torch.unique(table[:, :2], dim=0, return_inverse=True)
    past = memory.as_cache(model.dtype, rows=len(group))
    found = model.log_probabilities(ids, past, memory.length, places)
    chosen = found[inverse.to(found.device), table[:, 2].to(found.device)].tolist()
    for (_, _, _, query, candidate), value in zip(asked, chosen, strict=True):
        sums[query][candidate] += value
