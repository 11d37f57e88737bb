"""Label the same rows with two memories of one model and count the labels that differ."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import eq
from statistics import fmean

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.notes import check_supported, in_use
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import Changes, changes, mean_ci95
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.rows import answer_of
from deepthink_cli.prediction.scorer import Loaded, Scorer
from deepthink_cli.scoring.pipeline import EVALUATED, EVERY_REASON
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.scoring.softmax import log_share
from deepthink_cli.tasks.rows import EvaluatedRows

RowsFor = Callable[[OpenedMemory], EvaluatedRows]


@dataclass(frozen=True)
class ChangedRow:
    """A row with another label: its number, from 0, among the rows of its source, and both labels."""

    index: int
    query: Query
    before: str
    after: str


@dataclass(frozen=True)
class Labelled:
    """What changed on rows with true labels: the shares of right labels before and after, and the changes."""

    accuracy_before: float
    accuracy_after: float
    changes: Changes


@dataclass(frozen=True)
class LabelChanges:
    """The differences between two labellings of the same `n` rows.

    `log_probability` is the mean change of the log-probability of the label that the first labelling gives, in nats,
    and `largest` the largest change of any candidate's; `labelled` is None for rows without true labels.
    """

    n: int
    rows: tuple[ChangedRow, ...]
    log_probability: float
    log_probability_ci95: tuple[float, float] | None
    largest: float
    labelled: Labelled | None

    @property
    def transitions(self) -> dict[tuple[str, str], int]:
        """The number of rows that changed from one label to another, the most frequent change first."""
        return dict(Counter((row.before, row.after) for row in self.rows).most_common())


class LabelChangeTally:
    """Keeps a few numbers of every row, and the rows whose label changed."""

    def __init__(self) -> None:
        self.rows: list[ChangedRow] = []
        self.log_probabilities, self.largest = array("d"), 0.0  # the changes of the first labels'
        self.gold, self.before, self.after = list[str](), list[str](), list[str]()
        self.of_gold = array("d")  # the changes of the true labels' log-probabilities

    def add(
        self,
        index: int,
        query: Query,
        labels: tuple[str, str],
        scores: tuple[Mapping[str, float], Mapping[str, float]],
    ) -> None:
        """Count one row, with both labels and both scores of each of its candidates."""
        if labels[0] != labels[1]:
            self.rows.append(ChangedRow(index, query, *labels))
        before, after = ({label: log_share(score, each.values()) for label, score in each.items()} for each in scores)
        self.log_probabilities.append(after[labels[0]] - before[labels[0]])
        self.largest = max(self.largest, *(abs(after[label] - before[label]) for label in before))
        if (gold := query.gold) is not None:
            self.gold.append(gold)
            self.before.append(labels[0])
            self.after.append(labels[1])
            self.of_gold.append(after[gold] - before[gold])

    def result(self) -> LabelChanges:
        """The differences of all counted rows; at least one is needed."""
        mean, labelled = fmean(self.log_probabilities), None
        if self.gold:
            before, after = (fmean(map(eq, self.gold, labels)) for labels in (self.before, self.after))
            labelled = Labelled(before, after, changes(self.gold, self.before, self.after, self.of_gold))
        interval = mean_ci95(self.log_probabilities)
        return LabelChanges(len(self.log_probabilities), tuple(self.rows), mean, interval, self.largest, labelled)


@dataclass(frozen=True)
class ComparedLabels:
    """The labels of the same rows by two memories; `skipped` counts, by reason, rows that one of them cannot score."""

    changes: LabelChanges
    split: str
    task: str | None
    skipped: dict[str, int]


def not_comparable(before: OpenedMemory, after: OpenedMemory) -> str | None:
    """Why the labels of two memories cannot be compared; None if they can."""
    different = before.provenance.model.differences(after.provenance.model)
    if different:
        return f"A and B were made by different models: {' and '.join(different)} differ"
    ours, theirs = (set(memory.provenance.demonstrations.labels) for memory in (before, after))
    if any(memory.provenance.demonstrations.template.label_separator is not None for memory in (before, after)):
        return "rows may have several labels; compare the metrics of deepthink eval"
    if ours != theirs:
        return f"A has the labels {_listed(ours)}, B {_listed(theirs)}"
    try:
        scoring = _scoring(before, after)
        for memory in (before, after):
            scoring.check(memory.provenance, memory.name)
            in_use((), [memory], scoring)
    except InputError:
        return "A and B store corrections of other options of scoring; store others with deepthink calibrate"
    return None


def _scoring(before: OpenedMemory, after: OpenedMemory) -> Scoring:
    """The scoring of the stored corrections: of a correction of scores, if any, for hidden states fit any scoring."""
    stored = [each for memory in (before, after) if (each := memory.provenance.calibrated) is not None]
    biases = [each for each in stored if not each.of_states]
    return Scoring.of(**(biases or stored)[0].scoring) if stored else PLAIN


def compare_labels(
    before: OpenedMemory, after: OpenedMemory, rows_for: RowsFor, options: ModelOptions | None, tell: Tell
) -> ComparedLabels:
    """Label rows with two comparable memories; `rows_for` reads the rows in the template of a memory.

    Labels and scores are after the correction that a memory stores, by the scoring of this correction. Raises
    InputError, before any weights are loaded, for rows that do not fit a memory, as `rows_of_file` and `rows_of_task`
    do, and for a model that did not make them; and if no row can be scored by both memories.
    """
    scoring = _scoring(before, after)
    if scoring.steps:
        tell(Note(f"labels are compared with {scoring}, of which the stored correction is"))
    scorers = Scorer.open(before, scoring=scoring), Scorer.open(after, scoring=scoring)
    rows = rows_for(before), rows_for(after)
    for scorer, each in zip(scorers, rows, strict=True):
        check_supported(scorer.calibrate, each.checked)
    spec = scorers[0].find(options, tell)
    for scorer, each in zip(scorers, rows, strict=True):
        scorer.check_tokens(spec, each.source or each.split, each.checked)
    first = scorers[0].load(spec, tell)
    second = scorers[1].with_engine(first.engine, tell)
    tally, skipped = LabelChangeTally(), Counter(rows[0].skipped)
    progress = Progress("comparing labels", 0, rows[0].count)
    labelled = [
        _answers(loaded, each, told, progress)
        for loaded, each, told in zip((first, second), rows, (silent, tell), strict=True)
    ]
    for number, pair in enumerate(zip(*labelled, strict=True)):
        _count(tally, skipped, number, pair)
    if not tally.log_probabilities:
        raise InputError(f"{rows[0].split}: no row can be scored by both memories: {'; '.join(skipped)}")
    return ComparedLabels(tally.result(), rows[0].split, rows[0].task, dict(skipped))


def _answers(loaded: Loaded, rows: EvaluatedRows, tell: Tell, progress: Progress) -> Iterator[Prediction | Skipped]:
    """The predictions of a memory, after its stored correction, if any."""
    parts = loaded(rows.queries, size=EVALUATED, skip=EVERY_REASON, progress=progress, tell=tell)
    for row in chain.from_iterable(parts):
        yield row if isinstance(row, Skipped) else answer_of(row, loaded.scorer.calibrate)


def _count(tally: LabelChangeTally, skipped: Counter[str], number: int, pair: tuple[Prediction | Skipped, ...]) -> None:
    reasons = [row.reason for row in pair if isinstance(row, Skipped)]
    if reasons:
        skipped[reasons[0]] += 1
        return
    before, after = (row for row in pair if isinstance(row, Prediction))
    tally.add(number, before.query, (before.label, after.label), (before.scores, after.scores))


def _listed(labels: set[str]) -> str:
    return ", ".join(sorted(labels)) or "candidates of every input"
