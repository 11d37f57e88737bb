"""A scoring pass of rounded sizes, so that few different ones occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import torch

from deepthink_cli.engine.packing import Block, LogprobRequests, PackedRow, blocks, chains, requests

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sizes:
    """The sizes of a pass, rounded up.

    Its tokens, and the chains that they form, of which the longest has `longest` tokens and `longest_keys` keys; the
    number of keys of all chains, 0 if they are the tokens in order; the places and log-probabilities requested.
    """

    tokens: int
    chains: int
    keys: int
    longest: int
    longest_keys: int
    places: int
    asked: int

    def parts(self) -> list[int]:
        """The lengths of the parts of `FixedPass.numbers_P`."""
        bounds = self.chains + 1
        return [self.tokens, self.tokens, self.places, self.asked, self.asked, bounds, bounds, self.keys]


@dataclass(frozen=True)
class FixedPass:
    """Rows concatenated in a pass of rounded sizes.

    `numbers_P` holds, one after another, the tokens' ids and depths, the places, the requests of log-probabilities
    (their numbers of a place, and their tokens), the bounds of the chains among tokens and among keys, and the keys'
    places. What was added at the end of each is computed and not used.
    """

    sizes: Sizes
    blocks: tuple[Block, ...]
    numbers_P: Tensor
    requested: LogprobRequests

    @classmethod
    def of(cls, rows: Sequence[PackedRow]) -> FixedPass:
        """The rows, with rows after them whose scores nobody asks for."""
        fed, longest = sum(map(len, rows)), _power(max(map(len, rows)))
        added = _rounded(fed) - fed
        filled = [*rows, *(_filling(min(longest, added - done)) for done in range(0, added, longest))]
        starts = [0, *accumulate(map(len, filled))][:-1]
        requested, of_rows = requests(filled, starts), blocks(filled)
        cut = chains(of_rows)
        sizes = Sizes(
            fed + added,
            _power(len(cut.queries)),
            0 if cut.places_K is None else _rounded(len(cut.places_K)),
            longest,
            _power(max(cut.keys)),
            _power(len(requested.places_M)),
            _power(len(requested.asked_N)),
        )
        parts = [
            np.array([token for row in filled for token in row.ids]),
            np.array([depth for row in filled for depth in row.depths]),
            requested.places_M.numpy(),
            requested.asked_N.numpy(),
            requested.tokens_N.numpy(),
            np.array([0, *accumulate(cut.queries)]),
            np.array([0, *accumulate(cut.keys)]),
            np.empty(0, np.int64) if cut.places_K is None else cut.places_K,
        ]
        # Bounds are continued by empty chains at the end; other numbers by any that exist: 0.
        modes = ["constant"] * 5 + ["edge"] * 2 + ["constant"]
        longer = [
            np.pad(part, (0, size - len(part)), mode=mode)  # type: ignore[call-overload]
            for part, size, mode in zip(parts, sizes.parts(), modes, strict=True)
        ]
        return cls(sizes, of_rows, torch.from_numpy(np.concatenate(longer)), requested)


def _filling(size: int) -> PackedRow:
    """A row of tokens that stand for none, from which nothing is requested."""
    return PackedRow(query=0, ids=(0,) * size, depths=tuple(range(size)), ends=(size,) * size, first=0, asked=())


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


def _rounded(number: int) -> int:
    """The next multiple of 64 of which at most the first four bits are set: at most 63 more, or an eighth."""
    step = 1 << max(6, (number - 1).bit_length() - 4)
    return -(-number // step) * step
