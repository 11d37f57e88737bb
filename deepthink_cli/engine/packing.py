"""Many inputs in one pass: rows that hold a query once and its candidates as branches of it.

Knows token ids and where they stand, not models. A candidate's last token is never fed; leading tokens
that candidates share are fed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor

from deepthink_cli.model.tokens import TokenizedQuery


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Tokens fed together, in depth-first order, and what is read off them.

    Token n stands `depths[n]` tokens after the memory and is seen by itself and the tokens up to, not
    including, `ends[n]`. The answers of `query` are read at tokens `first` onward: every (place,
    token, candidate) of `asked` adds the log-probability of a token after `first + place`.
    """

    query: int
    ids: tuple[int, ...]
    depths: tuple[int, ...]
    ends: tuple[int, ...]
    first: int
    asked: tuple[tuple[int, int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Block:
    """Neighbouring rows of one length: `rows` of them, `size` tokens each, from token `start` of the pass.

    `mask_R1SS` is what to add to their attention scores; None where every row is a plain
    sequence, whose causal order says it all.
    """

    start: int
    rows: int
    size: int
    mask_R1SS: Tensor | None

    def of(self, tokens: Tensor) -> Tensor:
        """The block's part of a pass: a view of shape (R, H, S, ...) of (1, H, T, ...)."""
        part_HT = tokens[0, :, self.start : self.start + self.rows * self.size]  # (H, R * S, ...)
        return part_HT.view(len(part_HT), self.rows, self.size, *part_HT.shape[2:]).transpose(0, 1)


@dataclass(frozen=True)
class LogprobRequests:
    """The answers of a pass: log-probabilities of `tokens_N` after the tokens at `places_M[asked_N]`.

    Places are distinct; number n belongs to score `owners_N[n]` of the pass, whose (query, candidate) is
    `scores[owners_N[n]]`. The owners stay with the processor, where sums are made.
    """

    places_M: Tensor
    asked_N: Tensor
    tokens_N: Tensor
    owners_N: Tensor
    scores: tuple[tuple[int, int], ...]


def tree(number: int, query: TokenizedQuery) -> PackedRow:
    """The one row of an input: its query, then every candidate as a branch."""
    ids, depths, ends, asked = _branches(query.answers)
    length = len(query.prefix)
    return PackedRow(
        query=number,
        ids=query.prefix + ids,
        depths=(*range(length), *(length + depth for depth in depths)),
        ends=(length + len(ids),) * length + tuple(length + end for end in ends),
        first=length - 1,
        asked=asked,
    )


def lines(number: int, query: TokenizedQuery) -> Iterator[PackedRow]:
    """Plain sequences instead: one row for each distinct sequence that must be fed."""
    fed: dict[tuple[int, ...], list[int]] = {}
    for candidate, answer in enumerate(query.answers):
        fed.setdefault(answer[:-1], []).append(candidate)
    for ids, candidates in fed.items():
        length = len(query.prefix) + len(ids)
        asked = [(n, token, candidate) for candidate in candidates for n, token in enumerate(query.answers[candidate])]
        order = tuple(range(length))
        yield PackedRow(number, query.prefix + ids, order, (length,) * length, len(query.prefix) - 1, tuple(asked))


def blocks(rows: Sequence[PackedRow], dtype: torch.dtype, device: torch.device) -> tuple[Block, ...]:
    """The blocks of rows that stand side by side without padding, in their order; masks are of `dtype`."""
    result, start = [], 0
    for size, group in groupby(rows, key=len):
        together = list(group)
        result.append(Block(start, len(together), size, _mask(together, dtype, device)))
        start += len(together) * size
    return tuple(result)


def _mask(rows: Sequence[PackedRow], dtype: torch.dtype, device: torch.device) -> Tensor | None:
    size = len(rows[0])
    if all(min(row.ends) == size for row in rows):
        return None
    ends_R1S = torch.tensor([row.ends for row in rows], device=device)[:, None]
    asked_S = torch.arange(size, device=device)
    asking_S1 = asked_S[:, None]
    unseen_RSS = (asked_S > asking_S1) | (asking_S1 >= ends_R1S)
    return torch.zeros(unseen_RSS.shape, dtype=dtype, device=device).masked_fill_(unseen_RSS, -torch.inf)[:, None]


def requests(rows: Sequence[PackedRow], starts: Sequence[int], device: torch.device) -> LogprobRequests:
    """What is read off rows that start at tokens `starts` of a pass."""
    places: dict[int, int] = {}
    scores: dict[tuple[int, int], int] = {}
    table = []
    for row, start in zip(rows, starts, strict=True):
        for place, token, candidate in row.asked:
            asked = places.setdefault(start + row.first + place, len(places))
            table.append((asked, token, scores.setdefault((row.query, candidate), len(scores))))
    asked_N, tokens_N, owners_N = torch.tensor(table).T
    return LogprobRequests(
        torch.tensor(list(places), device=device), asked_N.to(device), tokens_N.to(device), owners_N, tuple(scores)
    )


@lru_cache(maxsize=256)
def _branches(
    answers: tuple[tuple[int, ...], ...],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int, int], ...]]:
    """Ids, depths, ends and asked of the tokens that follow a query, counted from its end."""
    paths = sorted({answer[:n] for answer in answers for n in range(1, len(answer))})  # depth first
    places = {path: place for place, path in enumerate(paths)}
    ends = {path[:n]: place + 1 for path, place in places.items() for n in range(1, len(path) + 1)}
    asked = [
        (places.get(answer[:n], -1) + 1, token, candidate)
        for candidate, answer in enumerate(answers)
        for n, token in enumerate(answer)
    ]
    return (
        tuple(path[-1] for path in paths),
        tuple(len(path) - 1 for path in paths),
        tuple(ends[path] for path in paths),
        tuple(asked),
    )
