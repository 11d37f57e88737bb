"""Whether a chosen setting is better than plain in-context learning beyond noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepthink_cli.evaluation.metrics import Z95, wilson

LEVEL = 0.025  # of the one-sided test
FEWEST_ROWS = math.ceil(-math.log2(LEVEL))  # with fewer, no result is beyond noise


@dataclass(frozen=True)
class Comparison:
    """The same held-out rows labelled in two ways: by the settings that were chosen without them, and plainly.

    `right` and `plain` count the rows that each labels correctly; `gained` those that only the first does, `lost` those
    that only the second does.
    """

    rows: int
    right: int
    plain: int
    gained: int
    lost: int

    @classmethod
    def of(cls, chosen: Sequence[bool], plain: Sequence[bool]) -> Comparison:
        """Compare row by row, given whether each row is right."""
        pairs = [(bool(first), bool(second)) for first, second in zip(chosen, plain, strict=True)]
        right, before = (sum(answers) for answers in zip(*pairs, strict=True))
        return cls(len(pairs), right, before, pairs.count((True, False)), pairs.count((False, True)))

    @property
    def accuracy(self) -> float:
        """The share of rows that the chosen settings label correctly."""
        return self.right / self.rows

    @property
    def baseline(self) -> float:
        """The share of rows that plain in-context learning labels correctly."""
        return self.plain / self.rows

    @property
    def difference(self) -> float:
        """The first share less the second."""
        return (self.gained - self.lost) / self.rows

    @property
    def p(self) -> float:
        """The p-value of the sign test (`sign_test`)."""
        return sign_test(self.gained, self.lost)

    @property
    def beyond_noise(self) -> bool:
        """Whether the chosen settings are better than plain in-context learning, p < 0.025."""
        return self.p < LEVEL

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference, of paired rows (Bonett and Price 2012, adjusted Wald).

        One row is added to the gained and one to the lost, so that it has a width also if no row differs.
        """
        gained, lost = ((count + 1) / (self.rows + 2) for count in (self.gained, self.lost))
        spread = Z95 * math.sqrt((gained + lost - (gained - lost) ** 2) / (self.rows + 2))
        return max(-1.0, gained - lost - spread), min(1.0, gained - lost + spread)

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "rows": self.rows,
            "accuracy": self.accuracy,
            "ci95": wilson(self.accuracy, self.rows),
            "plain": self.baseline,
            "plain_ci95": wilson(self.baseline, self.rows),
            "difference": self.difference,
            "difference_ci95": self.interval,
            "gained": self.gained,
            "lost": self.lost,
            "p": self.p,
        }


def sign_test(gained: int, lost: int) -> float:
    """The exact one-sided p-value: of at least `gained` of all discordant rows, each gained with probability 1/2.

    1 if no row is discordant.
    """
    count = gained + lost
    return sum(math.comb(count, more) for more in range(gained, count + 1)) / (1 << count)
