"""Time a sample of the rows before all are scored: the measurement of `--dry-run` in predict, eval and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.pipeline import NO_REASON, Chunk, planned
from deepthink_cli.scoring.scoring import PLAIN, Scoring

PROBE = 64  # rows that are timed
EXACT = 10_000  # rows up to which all are tokenised
_WARM_UP = 8  # rows that are scored before the sample: the first pass allocates

Label = Callable[[Iterable[Query | Skipped]], Iterable[object]]


@dataclass(frozen=True)
class Probed:
    """An estimate for all rows, from a sample.

    `skipped` has the rows that cannot be scored, with their places. `tokens` is the number of tokens of the other rows
    with all their candidates. If `exact` is False, not all rows were tokenised: `tokens` is then extrapolated from the
    sample, and rows that only the tokenizer refuses are not found. The rows of the sample, at `places`, have
    `timed_tokens` and took `timed_seconds`; loading the model and the memories took `loading` seconds.
    """

    rows: int
    skipped: Sequence[tuple[int, Skipped]]
    tokens: int
    exact: bool
    places: Sequence[int]
    timed_tokens: int
    timed_seconds: float
    loading: float = 0.0

    @property
    def scored(self) -> int:
        """The number of rows that are not skipped."""
        return self.rows - len(self.skipped)

    @property
    def seconds(self) -> float:
        """The expected time of all rows: the sample's seconds a token for every token, and the loading."""
        return self.loading + self.tokens * self.timed_seconds / max(1, self.timed_tokens)

    def as_json(self) -> dict[str, Any]:
        """The estimate as JSON values."""
        timed, probed = self.timed_seconds, len(self.places)
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

    A bad row is replaced in the sample by the next good row. Up to `EXACT` rows, all are tokenised. Queries that cannot
    be scored are skipped or raise InputError, as in `predictions`.
    """
    exact = count <= EXACT
    reading = _Reading(count, exact)
    tokens = 0
    for chunk in planned(engine, demonstrations, reading.read(rows), scoring=scoring, skip=skip):
        reading.planned(chunk)
        tokens += _tokens(chunk)
    sample = [query for _, query in reading.sample]
    for _ in label(sample[:: max(1, len(sample) // _WARM_UP)]):
        pass
    started = time.perf_counter()
    for _ in label(sample):
        pass
    seconds = time.perf_counter() - started
    timed = (
        tokens if not exact else sum(map(_tokens, planned(engine, demonstrations, sample, scoring=scoring, skip=skip)))
    )
    scored = count - len(reading.skipped)
    return Probed(
        count,
        reading.skipped,
        tokens if exact else round(timed * scored / max(1, len(sample))),
        exact,
        [place for place, _ in reading.sample],
        timed,
        seconds,
    )


class _Reading:
    """The rows that are tokenised, which are all rows or the sample, and the counts of the other rows."""

    def __init__(self, count: int, exact: bool) -> None:
        self.count, self.exact = count, exact
        self.skipped, self.sample = list[tuple[int, Skipped]](), list[tuple[int, Query]]()
        self._places: list[int] = []  # the places of the rows that were given to the plan
        self._done = 0

    def read(self, rows: Iterable[Query | Skipped]) -> Iterator[Query | Skipped]:
        """The rows to be tokenised."""
        for place, row in enumerate(rows):
            due = place * PROBE >= len(self.sample) * self.count
            if isinstance(row, Skipped):
                self.skipped.append((place, row))
                continue
            if due:
                self.sample.append((place, row))
            if due or self.exact:
                self._places.append(place)
                yield row

    def planned(self, chunk: Chunk) -> None:
        """Leave out of the sample the rows that the plan skipped."""
        places = self._places[self._done : self._done + len(chunk.rows)]
        self._done += len(places)
        bad = {place: row for place, row in zip(places, chunk.rows, strict=True) if isinstance(row, Skipped)}
        self.skipped += bad.items()
        self.sample = [(place, query) for place, query in self.sample if place not in bad]


def _tokens(chunk: Chunk) -> int:
    return sum(len(query.prefix) + sum(map(len, query.answers)) for query in chunk.plan.queries)
