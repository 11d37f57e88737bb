"""Pack many inputs into one pass: a row contains a query once, followed by its candidates as branches.

A candidate's last token is never fed; leading tokens that candidates share are fed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from deepthink_cli.model.tokens import TokenizedQuery

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Tokens of one row, in depth-first order, and the log-probabilities requested from them.

    Token n is `depths[n]` tokens after the end of the memory; tokens n to `ends[n]` - 1 attend to it. Every
    (place, token, candidate) in `asked` adds the log-probability of `token` after token `first + place` to the
    candidate's score.
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
    """Consecutive rows of equal length: `rows` of them, `size` tokens each, from token `start` of the pass.

    `mask_R1SS` is added to their attention scores; None if every row is a plain sequence, for which
    a causal mask is enough. Token s of row r is `depths[r][s]` tokens after the end of the memory.
    """

    start: int
    rows: int
    size: int
    mask_R1SS: Tensor | None
    depths: Sequence[Sequence[int]]

    def of(self, tokens: Tensor) -> Tensor:
        """The block's part of a pass: a view of shape (R, H, S, ...) of (1, H, T, ...)."""
        part_HT = tokens[0, :, self.start : self.start + self.rows * self.size]  # (H, R * S, ...)
        return part_HT.view(len(part_HT), self.rows, self.size, *part_HT.shape[2:]).transpose(0, 1)


@dataclass(frozen=True)
class LogprobRequests:
    """What a pass is read for: log-probabilities of `tokens_N` after the tokens at `places_M[asked_N]`.

    Places are distinct; number n belongs to score `owners_N[n]` of the pass, whose (query, candidate) is
    `scores[owners_N[n]]`. `owners_N` stays on the CPU, which computes the sums.
    """

    places_M: Tensor
    asked_N: Tensor
    tokens_N: Tensor
    owners_N: Tensor
    scores: tuple[tuple[int, int], ...]

    def summed(self, log_probabilities_N: Tensor) -> dict[tuple[int, int], float]:
        """The score of every (query, candidate), summed in float64."""
        sums = torch.zeros(len(self.scores), dtype=torch.float64)
        sums.index_add_(0, self.owners_N, log_probabilities_N.cpu().double())
        return dict(zip(self.scores, sums.tolist(), strict=True))


def tree(number: int, query: TokenizedQuery) -> PackedRow:
    """One row for an input: its query, then every candidate as a branch."""
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
    """Plain rows for an input: one for each distinct sequence that must be run."""
    fed: dict[tuple[int, ...], list[int]] = {}
    for candidate, answer in enumerate(query.answers):
        fed.setdefault(answer[:-1], []).append(candidate)
    for ids, candidates in fed.items():
        length = len(query.prefix) + len(ids)
        asked = [(n, token, candidate) for candidate in candidates for n, token in enumerate(query.answers[candidate])]
        order = tuple(range(length))
        yield PackedRow(number, query.prefix + ids, order, (length,) * length, len(query.prefix) - 1, tuple(asked))


def sequence(start: int, size: int) -> Block:
    """A plain sequence of `size` tokens from token `start` of a pass."""
    return Block(start, 1, size, None, [range(size)])


def blocks(rows: Sequence[PackedRow], dtype: torch.dtype, device: torch.device, start: int = 0) -> tuple[Block, ...]:
    """Group rows that are concatenated without padding from token `start` into blocks, in order.

    Masks have dtype `dtype`.
    """
    result = []
    for size, group in groupby(rows, key=len):
        together = list(group)
        depths = [row.depths for row in together]
        result.append(Block(start, len(together), size, _mask(together, dtype, device), depths))
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
    """The requested log-probabilities of rows that start at tokens `starts` of a pass."""
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
    """The fields `ids`, `depths`, `ends` and `asked` for the tokens after a query, with indices from its end."""
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
