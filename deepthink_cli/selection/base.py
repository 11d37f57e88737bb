"""The interface of a selection method."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from deepthink_cli.data.examples import Query


class SelectionMethod(Protocol):
    """A function that chooses demonstrations."""

    def __call__(self, pool: Sequence[Query], shots: int, draw: random.Random) -> list[Query]:
        """Choose `shots` of the rows in `pool`, in the order in which they will be read.

        `pool` has at least `shots` rows, in the order of their split, each with its true label in `gold`. Randomness
        comes from `draw` alone, so that a seed always chooses the same rows. Raises InputError if the method
        cannot choose that many.
        """
