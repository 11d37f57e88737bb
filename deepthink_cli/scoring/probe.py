"""Time a sample of the rows before all are scored: the measurement of `--dry-run` in predict, eval and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.pipeline import NO_REASON, planned
from deepthink_cli.scoring.scoring import PLAIN, Scoring

PROBE = 64  # rows that are timed
EXACT = 10_000  # rows up to which all are tokenised
_WARM_UP = 8  # rows that are scored before the sample

Label = Callable[[Iterable[Query | Skipped]], Iterable[object]]


@dataclass(frozen=True)
class Probed:
    """An estimate for all rows, from a sample.

    `skipped` has the rows that cannot be scored, with their places. `tokens` is the number of tokens of the other rows
    with all their candidates. If `exact` is False, not all rows were tokenised: `tokens` is then extrapolated from the
    sample, and rows that only the tokenizer refuses are not found. The `probed` rows of the sample have `timed_tokens`
    and took `timed_seconds`; loading the model and the memories took `loading` seconds.
    """

    rows: int
    skipped: Sequence[tuple[int, Skipped]]
    tokens: int
    exact: bool
    probed: int
    timed_tokens: int
    timed_seconds: float
    loading: float = 0.0

    @property
    def seconds(self) -> float:
        """The expected time of all rows: the sample's seconds a token for every token, and the loading."""
        return self.loading + self.tokens * self.timed_seconds / max(1, self.timed_tokens)

    def as_json(self) -> dict[str, Any]:
        """The estimate as JSON values."""
        timed, probed = self.timed_seconds, self.probed
        return {
            "rows": self.rows,
            "skipped": len(self.skipped),
            "tokens": self.tokens,
            "tokens_exact": self.exact,
            "seconds": round(self.seconds, 3),
            "loading": round(self.loading, 3),
            "probed": probed,
            "probed_seconds": round(timed, 3),
            "rows_per_second": round(probed / timed, 3) if probed else None,
            "tokens_per_second": round(self.timed_tokens / timed, 3) if probed else None,
        }


def probe(
    engine: Engine,
    demonstrations: TokenizedDemonstrations,
    rows: Iterable[Query | Skipped],
    count: int,
    label: Label,
    *,
    scoring: Scoring = PLAIN,
    skip: Collection[str] = NO_REASON,
) -> Probed:
    """The estimate for `count` rows after these demonstrations: at most `PROBE`, evenly spaced, are labelled and timed.

    Up to `EXACT` rows, all are tokenised. Queries that cannot be scored are skipped or raise InputError, as in
    `predictions`.
    """
    exact, skipped, read = count <= EXACT, list[tuple[int, Skipped]](), list[tuple[int, Query]]()
    for place, row in enumerate(rows):
        if isinstance(row, Skipped):
            skipped.append((place, row))
        elif exact or place * PROBE >= len(read) * count:
            read.append((place, row))
    good, places = list[tuple[Query, int]](), iter(read)
    for chunk in planned(engine, demonstrations, [row for _, row in read], scoring=scoring, skip=skip):
        tokens = (sum(1 for _ in query.ids) for query in chunk.plan.queries)
        for row in chunk.rows:
            place, query = next(places)
            if isinstance(row, Skipped):
                skipped.append((place, row))
            else:
                good.append((query, next(tokens)))
    probed = min(PROBE, len(good))
    sample = [good[number * len(good) // probed] for number in range(probed)]
    timed, scored = sum(tokens for _, tokens in sample), count - len(skipped)
    total = sum(tokens for _, tokens in good) if exact else round(timed * scored / max(1, probed))
    for _ in label([query for query, _ in sample[:: max(1, probed // _WARM_UP)]]):  # the first pass allocates
        pass
    started = time.perf_counter()
    for _ in label([query for query, _ in sample]):
        pass
    return Probed(count, skipped, total, exact, probed, timed, time.perf_counter() - started)
