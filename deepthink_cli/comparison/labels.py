"""Label the same rows with two memories of one model and count the labels that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from deepthink_cli.artifact.opening import OpenedMemory, check_memories, find_its_model, load_both
from deepthink_cli.data.examples import Skipped
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.label_changes import LabelChanges, LabelChangeTally
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.scoring.inputs import check_tokens
from deepthink_cli.scoring.pipeline import ANYTHING, EVALUATED, predictions
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.tasks.evaluated import EvaluatedRows

RowsFor = Callable[[OpenedMemory], EvaluatedRows]


@dataclass(frozen=True)
class ComparedLabels:
    """What two memories say of the same rows; `skipped` counts those that one of them cannot score, by reason."""

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
    if ours != theirs:
        return f"A has the labels {_listed(ours)}, B {_listed(theirs)}"
    return None


def compare_labels(
    before: OpenedMemory, after: OpenedMemory, rows_for: RowsFor, options: ModelOptions | None, tell: Tell
) -> ComparedLabels:
    """Label rows with the one iteration of each memory; `rows_for` reads them in the template of a memory.

    Raises InputError for rows that do not fit a memory, as `rows_of_file` and `rows_of_task` do, and for a model that
    did not make them.
    """
    rows = [rows_for(memory) for memory in (before, after)]
    spec = find_its_model(before, options, tell)
    for memory, each in zip((before, after), rows, strict=True):
        check_tokens(memory.provenance.demonstrations, spec, each.source or each.split, each.checked)
    engine, (first,) = load_both(before, spec, tell)
    (second,) = after.memories()
    check_memories(after, [second], engine, tell)
    tally, skipped = LabelChangeTally(), Counter(rows[0].skipped)
    progress = Progress("comparing labels", 0, rows[0].count)
    labelled = [
        chain.from_iterable(
            predictions(engine, [[memory]], each.queries, size=EVALUATED, skip=ANYTHING, tell=told, progress=progress)
        )
        for memory, each, told in zip((first, second), rows, (silent, tell), strict=True)
    ]
    for number, pair in enumerate(zip(*labelled, strict=True)):
        _count(tally, skipped, number, pair)
    if not tally.log_probability.n:
        raise InputError(f"{rows[0].split}: no row can be scored by both memories: {'; '.join(skipped)}")
    return ComparedLabels(tally.result(), rows[0].split, rows[0].task, dict(skipped))


def _count(tally: LabelChangeTally, skipped: Counter[str], number: int, pair: tuple[Prediction | Skipped, ...]) -> None:
    reasons = [row.reason for row in pair if isinstance(row, Skipped)]
    if reasons:
        skipped[reasons[0]] += 1
        return
    before, after = (row for row in pair if isinstance(row, Prediction))
    tally.add(number, before.query, (before.label, after.label), (before.scores, after.scores))


def _listed(labels: set[str]) -> str:
    return ", ".join(sorted(labels)) or "candidates of every input"
