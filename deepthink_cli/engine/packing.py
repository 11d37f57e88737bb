"""Pack many inputs into one pass: a row contains a query once, followed by its candidates as branches.

A candidate's last token is never fed; leading tokens that candidates share are fed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from deepthink_cli.model.tokens import TokenizedQuery

if TYPE_CHECKING:
    from torch import Tensor

Candidate = tuple[int, int]  # the number of a query, and of its candidate
SumsOfPass = Callable[[], dict[Candidate, float]]  # gives the score of every candidate, when the pass is complete


@dataclass(frozen=True, slots=True)
class PackedRow:
    """The tokens of one row, in depth-first order, and the requested log-probabilities.

    Token n is `depths[n]` tokens after the end of the memory; tokens n to `ends[n]` - 1 attend to it. Every (place,
    token, candidate) in `asked` adds the log-probability of `token` after token `first + place` to the candidate's
    score.
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
    """Consecutive rows of similar lengths, from token `start` of a pass, that attend to themselves.

    Token s of row r is `depths[r][s]` tokens after the end of the memory. Tokens s to `ends[r][s]` - 1 of the row
    attend to it, unless their attention begins at a greater depth: token s attends from depth `firsts[r][s]` on.
    `firsts` is None if no window hides a token.
    """

    start: int
    depths: Sequence[Sequence[int]]
    ends: Sequence[Sequence[int]]
    firsts: Sequence[Sequence[int]] | None = None

    @cached_property
    def stop(self) -> int:
        """The token of the pass after the last one of the block."""
        return self.start + sum(map(len, self.depths))

    @cached_property
    def size(self) -> int:
        """The number of tokens of the longest row."""
        return max(map(len, self.depths))

    @cached_property
    def plain(self) -> bool:
        """Whether every row is a plain sequence, without branches."""
        return all(min(ends) == len(ends) for ends in self.ends)

    def hidden_RSS(self) -> Tensor | None:
        """True where a token of a row does not attend to another; None if a causal mask is enough.

        R is the number of rows, padded to S tokens, or 1 for a row that stands for all.
        """
        if self.plain and self.firsts is None:
            return None
        # In plain rows a token attends to the same depths in every row: the longest row stands for all.
        shown = slice(longest := [*map(len, self.ends)].index(self.size), longest + 1) if self.plain else slice(None)
        asked_S = torch.arange(self.size)
        asking_S1 = asked_S[:, None]
        hidden_RSS = (asked_S > asking_S1) | (asking_S1 >= _padded(self.ends[shown])[:, None])
        if self.firsts is not None:
            hidden_RSS |= _padded(self.depths[shown])[:, None] < _padded(self.firsts[shown])[..., None]
        return hidden_RSS


@dataclass(frozen=True)
class LogprobRequests:
    """The log-probabilities requested from a pass: of `tokens_N` after the tokens at `places_M[asked_N]`.

    Places are distinct. Log-probability n is a part of the score with number `owners_N[n]`, whose (query, candidate) is
    `scores[owners_N[n]]`. `owners_N` stays on the CPU, which computes the sums.
    """

    places_M: Tensor
    asked_N: Tensor
    tokens_N: Tensor
    owners_N: Tensor
    scores: tuple[Candidate, ...]

    def summed(self, log_probabilities_N: Tensor) -> dict[Candidate, float]:
        """The score of every (query, candidate), summed in float64."""
        sums = torch.zeros(len(self.scores), dtype=torch.float64)
        sums.index_add_(0, self.owners_N, log_probabilities_N.cpu().double())
        return dict(zip(self.scores, sums.tolist(), strict=True))

    def pending(self, log_probabilities_N: Tensor) -> SumsOfPass:
        """Waits for the scores of `summed`, since a GPU may still be computing the log-probabilities."""
        copied_N, wait = log_probabilities_N.to("cpu", non_blocking=True, copy=True), None
        if log_probabilities_N.is_cuda:
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(torch.cuda.current_stream(log_probabilities_N.device))
            wait = done.synchronize

        def sums() -> dict[Candidate, float]:
            if wait is not None:
                wait()
            return self.summed(copied_N)

        return sums


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
    """Plain rows for an input: a row for each distinct sequence that must be run."""
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
    return Block(start, [range(size)], [(size,) * size])


def blocks(rows: Sequence[PackedRow], start: int = 0) -> tuple[Block, ...]:
    """The blocks of rows that are concatenated without padding from token `start`, in the same order.

    A row that is padded to the longest row of its block gets at most a tenth of padding, or 4 tokens.
    """
    groups: list[list[PackedRow]] = []
    for row in rows:
        longest = len(groups[-1][0]) if groups else 0
        if not min(0.9 * longest, longest - 4) <= len(row) <= longest:
            groups.append([])
        groups[-1].append(row)
    starts = accumulate((sum(map(len, group)) for group in groups), initial=start)
    return tuple(
        Block(start, [row.depths for row in group], [row.ends for row in group])
        for start, group in zip(starts, groups, strict=False)
    )


def part_of(tensor: Tensor, dim: int, start: int, stop: int) -> Tensor:
    """Elements `start` to `stop` - 1 of a dimension: a view, or for all elements, the tensor itself."""
    return tensor if (start, stop) == (0, tensor.shape[dim]) else tensor.narrow(dim, start, stop - start)


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Numbers of rows as one tensor (R, S), padded with zeros."""
    size = max(map(len, rows))
    return torch.tensor([[*row, *(0,) * (size - len(row))] for row in rows])


def requests(rows: Sequence[PackedRow], starts: Sequence[int]) -> LogprobRequests:
    """The requested log-probabilities of rows that start at tokens `starts` of a pass."""
    places: dict[int, int] = {}
    scores: dict[Candidate, int] = {}
    table = []
    for row, start in zip(rows, starts, strict=True):
        for place, token, candidate in row.asked:
            asked = places.setdefault(start + row.first + place, len(places))
            table.append((asked, token, scores.setdefault((row.query, candidate), len(scores))))
    asked_N, tokens_N, owners_N = torch.tensor(table).T
    return LogprobRequests(torch.tensor(list(places)), asked_N, tokens_N, owners_N, tuple(scores))


def sent(device: torch.device, requested: LogprobRequests, *numbers: Tensor) -> tuple[LogprobRequests, list[Tensor]]:
    """The requests and other tensors of integers on a device, in one copy to it."""
    tensors = [requested.places_M, requested.asked_N, requested.tokens_N, *numbers]
    numbers_N = torch.cat([tensor.flatten() for tensor in tensors])
    # A GPU copies from pinned memory by itself, so that the copy does not wait for earlier computations.
    flat = (numbers_N.pin_memory() if device.type == "cuda" else numbers_N).to(device, non_blocking=True)
    parts: Any = flat.split([tensor.numel() for tensor in tensors])  # type: ignore[no-untyped-call]
    places_M, asked_N, tokens_N, *others = (
        part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)
    )
    return replace(requested, places_M=places_M, asked_N=asked_N, tokens_N=tokens_N), others


def network_inputs(ids_1T: Tensor, positions_1T: Tensor) -> dict[str, Any]:
    """The network's arguments for a pass inside `over_memory`."""
    return {
        "input_ids": ids_1T,
        "position_ids": positions_1T,
        "attention_mask": torch.ones_like(ids_1T),
        "use_cache": False,
    }


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
