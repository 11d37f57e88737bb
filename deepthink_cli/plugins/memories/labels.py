"""Label the same rows with two memories of one model and count the labels that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import eq
from statistics import fmean

from deepthink_cli.artifact.opening import OpenedMemory
from deepthink_cli.calibration.notes import check_supported, in_use
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import Changes, changes
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.rows import answer_of
from deepthink_cli.prediction.scorer import Loaded, Scorer
from deepthink_cli.scoring.pipeline import EVALUATED, EVERY_REASON
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.tasks.rows import EvaluatedRows

RowsFor = Callable[[OpenedMemory], EvaluatedRows]


@dataclass(frozen=True)
class LabelledRow:
    """A row with its number, from 0, among the rows of its source, and the labels that both memories give."""

    index: int
    query: Query
    before: str
    after: str


@dataclass(frozen=True)
class ComparedLabels:
    """The labels of the same rows by two memories; `skipped` counts, by reason, rows that one of them cannot score."""

    rows: tuple[LabelledRow, ...]
    split: str
    task: str | None
    skipped: dict[str, int]

    @property
    def changed(self) -> list[LabelledRow]:
        """The rows whose label differs."""
        return [row for row in self.rows if row.before != row.after]

    @property
    def transitions(self) -> dict[tuple[str, str], int]:
        """The number of rows that changed from one label to another, the most frequent change first."""
        return dict(Counter((row.before, row.after) for row in self.changed).most_common())

    @property
    def accuracies(self) -> tuple[float, float] | None:
        """The shares of right labels before and after; None for rows without true labels."""
        gold, before, after = self._with_gold()
        return (fmean(map(eq, gold, before)), fmean(map(eq, gold, after))) if gold else None

    @property
    def changes(self) -> Changes:
        """The rows that were fixed and broken."""
        return changes(*self._with_gold(), ())

    def _with_gold(self) -> tuple[list[str], list[str], list[str]]:
        """The true labels of the rows that have one, and their labels before and after."""
        known = [(row.query.gold, row.before, row.after) for row in self.rows if row.query.gold is not None]
        return [gold for gold, _, _ in known], [before for _, before, _ in known], [after for *_, after in known]


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

    Labels are after the correction that a memory stores, by the scoring of this correction. Raises InputError, before
    any weights are loaded, for rows that do not fit a memory, as `rows_of_file` and `rows_of_task` do, and for a model
    that did not make them; and if no row can be scored by both memories.
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
    second = scorers[1].load(first.engine, tell)
    progress = Progress("comparing labels", 0, rows[0].count)
    answers = [
        _answers(loaded, each, told, progress)
        for loaded, each, told in zip((first, second), rows, (silent, tell), strict=True)
    ]
    labelled, skipped = list[LabelledRow](), Counter(rows[0].skipped)
    for number, pair in enumerate(zip(*answers, strict=True)):
        match pair:
            case Prediction() as ours, Prediction() as theirs:
                labelled.append(LabelledRow(number, ours.query, ours.label, theirs.label))
            case (Skipped() as unscored, _) | (_, Skipped() as unscored):
                skipped[unscored.reason] += 1
    if not labelled:
        raise InputError(f"{rows[0].split}: no row can be scored by both memories: {'; '.join(skipped)}")
    return ComparedLabels(tuple(labelled), rows[0].split, rows[0].task, dict(skipped))


def _answers(loaded: Loaded, rows: EvaluatedRows, tell: Tell, progress: Progress) -> Iterator[Prediction | Skipped]:
    """The predictions of a memory, after its stored correction, if any."""
    parts = loaded(rows.queries, size=EVALUATED, skip=EVERY_REASON, progress=progress, tell=tell)
    for row in chain.from_iterable(parts):
        yield row if isinstance(row, Skipped) else answer_of(row, loaded.scorer.calibrate)


def _listed(labels: set[str]) -> str:
    return ", ".join(sorted(labels)) or "candidates of every input"
