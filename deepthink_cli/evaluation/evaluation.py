"""The accuracy of each iteration of a memory, next to plain in-context learning and the majority class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from deepthink_cli.calibration.calibrator import Calibrator, corrected_rows
from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.evaluation.accuracy import Metrics, Tally
from deepthink_cli.evaluation.changes import Answer, Changes, ChangeTally
from deepthink_cli.evaluation.probabilities import Probabilities, ProbabilityTally, log_share
from deepthink_cli.evaluation.tables import Table, table_by_iteration
from deepthink_cli.io.prefetch import ahead
from deepthink_cli.io.text import html_table
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.options import ScoreName
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Prediction, longest, predict_mean
from deepthink_cli.scoring.skipping import NOT_FINITE, ScoringChunk, scored, scoring_chunk

COUNTS = ("changed", "fixed", "broken")
CHUNK = 1024  # queries tokenised and scored together


@dataclass(frozen=True)
class Evaluation:
    """The metrics of every iteration, and the confusion table of the last one.

    `changes` since T = 1 are those of the later iterations; there are none if T = 1 was not evaluated. Free answers
    have no `probabilities`, and their changes none of a log-probability. `calibrated`
    holds the same of the corrected predictions, for every calibration.
    """

    n: int
    results: dict[int, Metrics]
    majority: tuple[str, float] | None
    chance: float
    confusion: dict[str, dict[str, int]]
    probabilities: dict[int, Probabilities]
    changes: dict[int, Changes]
    calibrated: Mapping[str, Evaluation] = field(default_factory=dict)

    @property
    def last(self) -> Metrics:
        """The metrics of the last iteration."""
        return self.results[max(self.results)]

    @property
    def true_labels(self) -> dict[str, int]:
        """How many rows have each true label; empty if every row has its own candidates."""
        return {label: sum(row.values()) for label, row in self.confusion.items()}

    def table(self) -> Table:
        """The columns and rows of a table with a row for each iteration."""
        return table_by_iteration(self.results, self.probabilities, self.changes)

    def _repr_html_(self) -> str:
        """A table for each way of scoring, for notebooks."""
        tables = {"": self, **{f", {name} calibration": each for name, each in self.calibrated.items()}}
        return "\n".join(html_table(*each.table(), f"{self.n:,} rows{by}") for by, each in tables.items())

    def as_json(self) -> dict[str, Any]:
        """The part of `eval --json` that depends on the predictions."""
        majority = None if self.majority is None else {"label": self.majority[0], "accuracy": self.majority[1]}
        return {
            "n": self.n,
            "results": [{"iteration": t, **self._metrics(t), **self._calibrated(t)} for t in self.results],
            "majority": majority,
            "chance": self.chance,
            "confusion": self.confusion,
            "true_labels": self.true_labels,
        }

    def _metrics(self, iteration: int) -> dict[str, Any]:
        changes = self.changes.get(iteration)
        if iteration not in self.probabilities:
            counts = None if changes is None else {name: getattr(changes, name) for name in COUNTS}
            return {**asdict(self.results[iteration]), "changes": counts}
        return {
            **asdict(self.results[iteration]),
            **asdict(self.probabilities[iteration]),
            "changes": None if changes is None else asdict(changes),
        }

    def _calibrated(self, iteration: int) -> dict[str, Any]:
        if not self.calibrated:
            return {}
        return {"calibrated": {name: each._metrics(iteration) for name, each in self.calibrated.items()}}


class Evaluator:
    """Counts labelled predictions, iteration by iteration, and their corrections by `calibrate`, in constant memory.

    The predictions of one query by all iterations follow each other, in any order.
    """

    def __init__(self, iterations: Sequence[int], labels: Sequence[str], calibrate: Iterable[str] = ()) -> None:
        ordered = sorted(iterations)
        self.tallies = {iteration: Tally(labels) for iteration in ordered}
        self.probabilities = {iteration: ProbabilityTally() for iteration in ordered}
        self.changes = {iteration: ChangeTally() for iteration in ordered if ordered[0] == 1 < iteration}
        self.calibrated = {name: Evaluator(iterations, labels) for name in calibrate if name != NONE}
        self.chance = 0.0
        self.memories = len(iterations)
        self.answers: list[tuple[int, Answer]] = []  # to the current query, each with its iteration

    def add(self, prediction: Prediction) -> None:
        """Count one prediction, whose query must have a true label."""
        gold, iteration = prediction.query.gold, prediction.iteration
        assert gold is not None
        self.tallies[iteration].add(gold, prediction.label, prediction.label_mean_per_token, prediction.tied)
        log_probability = 0.0
        if prediction.scores:  # there are none of free answers
            self.chance += 1 / len(prediction.scores)
            log_probability = log_share(prediction.scores[gold], prediction.scores.values())
            self.probabilities[iteration].add(log_probability, prediction.probability, prediction.label == gold)
        self.answers.append((iteration, Answer(prediction.label, log_probability)))
        if len(self.answers) == self.memories:
            answers = dict(self.answers)
            for later, changes in self.changes.items():
                changes.add(gold, answers[1], answers[later])
            self.answers.clear()
        for name, evaluator in self.calibrated.items():
            evaluator.add(prediction.calibrated[name].prediction)

    @property
    def n(self) -> int:
        """The number of rows counted so far."""
        return self.tallies[max(self.tallies)].n

    def result(self) -> Evaluation:
        """The metrics of all predictions counted so far."""
        last = self.tallies[max(self.tallies)]
        return Evaluation(
            n=last.n,
            results={iteration: tally.metrics() for iteration, tally in self.tallies.items()},
            majority=last.majority(),
            chance=self.chance / sum(tally.n for tally in self.tallies.values()),
            confusion=last.table() if last.labels else {},
            probabilities={t: tally.result() for t, tally in self.probabilities.items() if tally.log_probability.n},
            changes={iteration: tally.result() for iteration, tally in self.changes.items()},
            calibrated={name: evaluator.result() for name, evaluator in self.calibrated.items()},
        )


def evaluated(
    engine: Engine,
    memories: Sequence[Memory],
    queries: Iterable[Query],
    skipped: Counter[str],
    calibrate: Iterable[str] = (),
    ensemble: Sequence[Sequence[Memory]] = (),
    score: ScoreName = "sum",
) -> Iterator[Prediction]:
    """Yield every query's predictions, one per memory, in order; unscorable queries are counted in `skipped`.

    As `evaluated_or_skipped` does, but raises NotFiniteError for scores that are not finite, and InputError for tokens
    that the model does not know.
    """
    for row in evaluated_or_skipped(engine, memories, queries, skipped, calibrate, ensemble, score, False):
        if not isinstance(row, Skipped):
            yield row


def evaluated_or_skipped(
    engine: Engine,
    memories: Sequence[Memory],
    queries: Iterable[Query | Skipped],
    skipped: Counter[str],
    calibrate: Iterable[str] = (),
    ensemble: Sequence[Sequence[Memory]] = (),
    score: ScoreName = "sum",
    skip: bool = True,
) -> Iterator[Prediction | Skipped]:
    """Yield every query's predictions, one per memory, in order, and `Skipped` in the place of unscorable queries.

    They are also counted in `skipped`, by reason. All memories must be of the same demonstrations, and so must those of
    each member of the `ensemble`, which are as in `predict_chunks`. Predictions are corrected by the calibrations in
    `calibrate`, a chunk at a time. At most three chunks of queries are in memory.
    """
    members = [[engine.place(memory) for memory in member] for member in (memories, *ensemble)]
    first, most = memories[0].provenance, longest([member[0] for member in members]).provenance
    assert first is not None
    assert most is not None
    # As for `predict`, texts of random words are those of the first memory, whatever the others hold.
    predict = partial(predict_mean, engine, members, score=score)
    calibrator = Calibrator(engine, members[0], first.demonstrations, calibrate, predict, score)
    for chunk in ahead(scoring_chunks(engine, most.demonstrations, queries, skipped, score, skip)):
        rows = scored(engine, chunk, predict, skip)
        skipped.update(row.reason for row in rows if isinstance(row, Skipped) and row.reason == NOT_FINITE)
        yield from corrected_rows(calibrator, rows)


def with_first_reading(engine: Engine, memories: Sequence[Memory]) -> list[Memory]:
    """The memories including that of T = 1 (plain in-context learning), which is read again if it was not kept."""
    if any(memory.iteration == 1 for memory in memories):
        return list(memories)
    provenance = memories[0].provenance
    assert provenance is not None
    (first,) = engine.read([Reading(provenance.demonstrations.token_ids)])
    return [replace(first, provenance=provenance), *memories]


def scoring_chunks(
    engine: Engine,
    demonstrations: TokenizedDemonstrations,
    queries: Iterable[Query | Skipped],
    skipped: Counter[str],
    score: ScoreName = "sum",
    skip: bool = False,
) -> Iterator[ScoringChunk]:
    """Yield the queries that can be scored after these demonstrations, tokenised, a chunk at a time.

    The others are counted in `skipped` by reason: too long for the model, or with candidates that have the same tokens;
    with `skip`, also rows that cannot be read, and those with tokens that the model does not know.
    """
    tokenize, remaining = query_tokenizer(engine.tokenizer, demonstrations, score), iter(queries)
    while part := list(islice(remaining, CHUNK)):
        chunk = scoring_chunk(engine, tokenize, len(demonstrations.token_ids), part, unknown=skip)
        skipped.update(row.reason for row in chunk.rows if isinstance(row, Skipped))
        if chunk.queries or skip:
            yield chunk
