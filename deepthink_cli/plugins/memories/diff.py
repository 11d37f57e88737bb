"""What differs between two memories: where they come from, their keys and values, and the labels that they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import eq
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from deepthink_cli.artifact.format import Artifact
from deepthink_cli.artifact.metadata import method_text, origin_lines, prompt_lines, versions_line
from deepthink_cli.artifact.opening import OpenedMemory, opened
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

if TYPE_CHECKING:
    from torch import Tensor

    from deepthink_cli.memory import Memory


@dataclass(frozen=True)
class Change:
    """Relative change |B - A| / |A| of keys and of values; infinite where A is zero and B is not."""

    keys: float
    values: float


@dataclass(frozen=True)
class TensorChanges:
    """The changes of all tensors together, and of each layer."""

    whole: Change
    layers: tuple[Change, ...]


def tensor_changes(before: Memory, after: Memory) -> TensorChanges | None:
    """Compare two memories; None if their keys and values have other shapes."""
    import torch

    def shapes(memory: Memory) -> list[torch.Size]:
        return [tensor.shape for tensor in (*memory.keys, *memory.values)]

    if shapes(before) != shapes(after):
        return None
    squares = torch.stack([_squares(before, after, layer) for layer in range(len(before.keys))])
    return TensorChanges(_change(squares.sum(0)), tuple(map(_change, squares)))


def _squares(before: Memory, after: Memory, layer: int) -> Tensor:
    """Sums of squares, float64 (2, 2): of keys and values, of the difference and of A's own."""
    import torch

    from deepthink_cli.memory import PARTS

    pairs = [(getattr(before, part)[layer].double(), getattr(after, part)[layer].double()) for part in PARTS]
    return torch.stack([torch.stack([each.square().sum() for each in (new - old, old)]) for old, new in pairs])


def _change(squares: Tensor) -> Change:
    """The change that sums of squares (2, 2) stand for."""
    moved, norms = squares.sqrt().T
    return Change(*(moved / norms).nan_to_num(nan=0.0, posinf=float("inf")).tolist())


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

    def answers_of(loaded: Loaded, given: EvaluatedRows, told: Tell) -> Iterator[Prediction | Skipped]:
        """The predictions of a memory, after its stored correction, if any."""
        parts = loaded(given.queries, size=EVALUATED, skip=EVERY_REASON, progress=progress, tell=told)
        for row in chain.from_iterable(parts):
            yield row if isinstance(row, Skipped) else answer_of(row, loaded.scorer.calibrate)

    answers = answers_of(first, rows[0], silent), answers_of(second, rows[1], tell)
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


def _listed(labels: set[str]) -> str:
    return ", ".join(sorted(labels)) or "candidates of every input"


@dataclass(frozen=True)
class MemoryDiff:
    """The differences between memory A, `before`, and memory B, `after`.

    `provenance` has pairs of different facts, by name; `model` has the parts in which the models differ. `tensors` is
    None if keys and values have other shapes. `labels` is None unless rows were given and both memories could label
    them; `not_labelled` says why they could not.
    """

    before: OpenedMemory
    after: OpenedMemory
    provenance: dict[str, tuple[str | None, str | None]]
    model: tuple[str, ...]
    tensors: TensorChanges | None
    labels: ComparedLabels | None
    not_labelled: str | None


def diff(
    before: str | Path | OpenedMemory,
    after: str | Path | OpenedMemory,
    rows: RowsFor | None = None,
    *,
    options: ModelOptions | None = None,
    tell: Tell = silent,
) -> MemoryDiff:
    """Compare two memories, of one iteration each; with `rows`, also the labels that they give.

    Args:
        before: memory A: a file, whose last iteration is compared, or the result of `open_memory`.
        after: memory B, in the same way.
        rows: reads the rows for a memory, as `rows_of_file` and `rows_of_task` do; without it no weights are loaded.
        options: how to load the model that made them; unset options are taken from memory A.
        tell: called with every event.

    Raises InputError for a damaged file, and for rows or a model that do not fit.
    """
    before, after = opened(before), opened(after)
    (first,), (second,) = before.memories(), after.memories()
    why = None if rows is None else not_comparable(before, after)
    ours, theirs = before.provenance, after.provenance
    return MemoryDiff(
        before=before,
        after=after,
        provenance=_differences(before, after),
        model=tuple(ours.model.differences(theirs.model)),
        tensors=tensor_changes(first, second),
        labels=None if rows is None or why else compare_labels(before, after, rows, options, tell),
        not_labelled=why,
    )


def _differences(before: OpenedMemory, after: OpenedMemory) -> dict[str, tuple[str | None, str | None]]:
    """What is said of each memory, by name, where that differs."""
    ours, theirs = _described(before), _described(after)
    pairs = {name: (ours.get(name), theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _described(memory: OpenedMemory) -> dict[str, str]:
    provenance, method, read = memory.provenance, memory.provenance.method, memory.provenance.demonstrations
    source = memory.source
    return {
        **origin_lines(provenance, method_text(method.iterations, str(method.update), method.positions)),
        "demonstrations": f"{len(read.examples)}, L = {len(read.token_ids)} tokens, sha256 {read.sha256[:12]}",
        **prompt_lines(read.labels, read.template, read.chat),
        "iteration": f"{memory.iterations[-1]} of {', '.join(map(str, memory.kept))}",
        **(versions_line(source.header.metadata.versions) if isinstance(source, Artifact) else {}),
    }
