"""The rows that `predict` and `eval -o` write, and their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from deepthink_cli.calibration.bounded import bound, fewest
from deepthink_cli.calibration.registry import HEAD, NONE, STORED, calibration
from deepthink_cli.corrections import Calibrated
from deepthink_cli.data.examples import Skipped
from deepthink_cli.data.template import Template
from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.events import Note, Tell, Warn
from deepthink_cli.io.tables import Columns, Kind, Write
from deepthink_cli.io.text import jsonable
from deepthink_cli.multilabel import GiveLabels, label_shares, labels_given
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.inputs import MAX_FIELDS, CheckedRows
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.scoring.softmax import shares

UNCALIBRATED, FITTED = "uncalibrated", "fitted to labelled rows"
ABOUT = {"deepthink": "probability is the label's share among the candidates"}
# Fields of output rows that a table divides into columns, or that only some tables have.
_OUTPUT = ("iteration", "confidence", "top", "scores", "calibrated", "input", "gold", "error")
_SHOWN = 3  # skipped rows that are named


@dataclass(frozen=True)
class OutputRows:
    """The contents of output rows, and the columns of their table.

    `labels` are the labels of every row, empty if rows have candidates of their own. `fields` are the fields of the
    input with their kinds, None if unknown until they are read. Rows have an iteration with `several`, and a true label
    with `gold`; with `skip`, a row may be an error. `stored` is the memory's own correction. With `given`, a row has
    several labels, which a table joins as the `template` does.
    """

    iterations: tuple[int, ...]
    labels: tuple[str, ...]
    calibrate: tuple[str, ...] = ()
    scoring: Scoring = PLAIN
    options: LabelOptions = field(default_factory=LabelOptions.checked)
    fields: Mapping[str, Kind] | None = None
    table: bool = False
    several: bool = False
    gold: bool = False
    skip: bool = False
    stored: Calibrated | None = None
    given: GiveLabels | None = None
    template: Template | None = None

    def row(self, index: int, row: Prediction | Skipped) -> dict[str, Any]:
        """One row of output; the first calibration gives label and probability, the scores are the model's."""
        if isinstance(row, Skipped):
            return self.skipped(index, row)
        written: dict[str, Any] = {"index": index, **({"iteration": row.iteration} if self.several else {})}
        if row.text is not None:
            written |= {"answer": row.label, "right": row.label == row.query.gold, "text": row.text}
            return {**written, **self._input(row.query.fields), "gold": row.query.gold}
        answer = answer_of(row, self.calibrate)
        found = dict(zip(answer.scores, shares(list(answer.scores.values())), strict=True))
        if self.given is not None:
            written["labels"] = self._labels(self.given(row))
            found = label_shares(row)
            label = max(found, key=lambda each: found[each])
            answer = replace(answer, label=label, probability=found[label])
        written |= {"label": answer.label, "probability": answer.probability, **self._chosen(found)}
        for step in self.scoring.steps:
            written |= step.of_row(row)
        if self._scored:
            written["scores"] = row.scores
            if calibrated := {name: row.calibrated[name] for name in self.calibrate if name in row.calibrated}:
                written["calibrated"] = {
                    name: {
                        "label": each.prediction.label,
                        "probability": each.prediction.probability,
                        "scores": each.prediction.scores,
                        each.counted: each.inputs,
                        "bias": each.bias,
                    }
                    for name, each in calibrated.items()
                }
        if self.options.threshold is not None:
            written["guess"] = answer.label
            if answer.probability < self.options.threshold:
                written["label"] = None
        written |= self._input(row.query.fields)
        if self.gold:
            written["gold"], template = row.query.gold, self.template
            if self.given is not None and template is not None:
                written["gold"] = self._labels(template.labels_of(row.query.gold or ""))
        return written

    def with_scores(self) -> Self:
        """The same rows with all scores, from which the corrections of an interrupted labelling continue."""
        return replace(self, options=self.options.model_copy(update={"scores": True}))

    def without_scores(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row of `with_scores` as these rows are written."""
        return row if self._scored else {name: row[name] for name in row if name not in ("scores", "calibrated")}

    def _labels(self, labels: Sequence[str]) -> Any:
        """Several labels: a list, or a text in a table."""
        assert self.template is not None
        return self.template.answer_of(labels) if self.table else list(labels)

    def skipped(self, index: int, row: Skipped) -> dict[str, Any]:
        """The output row of a row without a prediction: the reason, and the fields that could be read."""
        return {"index": index, "error": row.error, **({} if row.fields is None else self._input(row.fields))}

    @property
    def fitted(self) -> bool:
        """Whether probabilities are those of a correction that was fitted to labelled rows."""
        return self.calibrate[:1] == (STORED,) and self.stored is not None and self.stored.held_out is not None

    def _chosen(self, probabilities: Mapping[str, float]) -> dict[str, Any]:
        """The fields of the row for its best labels and its threshold."""
        if self.options.top is None and self.options.threshold is None:
            return {}
        said: dict[str, Any] = {"confidence": FITTED if self.fitted else UNCALIBRATED}
        if self.options.top is not None:  # equally likely candidates keep their order
            ordered = sorted(probabilities, key=lambda label: -probabilities[label])[: self.options.top]
            said["top"] = [{"label": label, "probability": probabilities[label]} for label in ordered]
        return said

    def _input(self, fields: Mapping[str, Any] | None) -> dict[str, Any]:
        """The fields of the input that are kept."""
        fields = {name: jsonable(value) for name, value in (fields or {}).items()}
        if self.options.columns is not None:
            fields = {name: fields[name] for name in self.options.columns if name in fields}
        if not self.table:
            return {} if self.options.columns == () else {"input": fields}
        if not self._kept:
            return {"input": fields} if "input" in self.columns else {}
        return {self._kept[name]: value for name, value in fields.items()}

    @property
    def _scored(self) -> bool:
        """Whether rows have the scores and corrections of all labels."""
        return self.options.scores or not self.table

    @property
    def by_label(self) -> bool:
        """Whether a table has a column for each label."""
        return self.table and bool(self.labels)

    @cached_property
    def _kept(self) -> dict[str, str]:
        """The column of each kept field of the input: its own name, unless that is a column of the output."""
        names = self.options.columns if self.options.columns is not None else tuple(self.fields or ())
        taken = {*_OUTPUT, *self._output}
        return {name: f"input.{name}" if name in taken else name for name in names}

    @cached_property
    def columns(self) -> Columns:
        """The columns of a table of these rows."""
        columns = dict(self._output)
        for name, column in self._kept.items():
            columns[column] = (self.fields or {}).get(name, "text")
        if self.fields is None and self.options.columns is None:
            columns["input"] = "text"
        return columns | {name: "text" for name, wanted in (("gold", self.gold), ("error", self.skip)) if wanted}

    @cached_property
    def _output(self) -> dict[str, Kind]:
        """The columns of a row before the columns of the input."""
        columns: dict[str, Kind] = {"index": "integer"}
        if self.several:
            columns["iteration"] = "integer"
        if self.given is not None:
            columns["labels"] = "text"
        columns |= {"label": "text", "probability": "number"}
        if self.options.top is not None or self.options.threshold is not None:
            columns["confidence"] = "text"
        if self.options.threshold is not None:
            columns["guess"] = "text"
        for step in self.scoring.steps:
            columns |= step.columns()
        calibrations = [name for name in self.calibrate if name != NONE] if self._scored else []
        if not self.labels:
            wanted = {"top": self.options.top is not None, "scores": self._scored, "calibrated": bool(calibrations)}
            return columns | {name: "text" for name, has in wanted.items() if has}
        for number in range(1, min(self.options.top or 0, len(self.labels)) + 1):
            columns |= {f"top.{number}.label": "text", f"top.{number}.probability": "number"}
        if self._scored:
            columns |= {f"scores.{label}": "number" for label in self.labels}
        for name in calibrations:
            counted = "rows" if name != STORED and calibration(name).from_rows else "texts"
            if name == STORED and self.stored is not None:
                counted = self.stored.counted
            place = f"calibrated.{name}"
            columns |= {f"{place}.label": "text", f"{place}.probability": "number"}
            columns |= {f"{place}.scores.{label}": "number" for label in self.labels}
            columns[f"{place}.{counted}"] = "integer"
            if name != STORED or self.stored is None or self.stored.head is None:
                columns |= {f"{place}.bias.{label}": "number" for label in self.labels}
        return columns


def answer_of(prediction: Prediction, calibrate: Sequence[str]) -> Prediction:
    """The prediction that gives the label: corrected by the first calibration, if there is one."""
    first = prediction.calibrated.get("".join(calibrate[:1]))
    return prediction if first is None else first.prediction


def output_rows(
    scorer: Scorer, checked: CheckedRows | None, table: bool, options: LabelOptions, errors: ErrorOptions
) -> OutputRows:
    """The rows that `predict` writes for checked inputs, or for standard input.

    Raises InputError as `input_fields`, and for options and steps that rows with several labels do not have.
    """
    memory, labels = scorer.memory, scorer.demonstrations.labels
    if options.max_error is not None:
        options = options.model_copy(update={"threshold": threshold_of(scorer, options)})
    fields, given = input_fields(options, checked, table), None
    if scorer.gives_several:
        if options.threshold is not None:
            raise InputError.of("threshold", options.threshold, "rows may have several labels, each with its threshold")
        given = labels_given(memory.provenance, scorer.scoring, memory.name)
    shared = checked is None or checked.other_labels is None
    return OutputRows(
        memory.iterations,
        labels if shared else (),
        scorer.calibrate,
        scorer.scoring,
        options,
        fields,
        table,
        several=len(memory.iterations) > 1,
        skip=errors.skip,
        stored=memory.provenance.calibrated,
        given=given,
        template=scorer.demonstrations.template,
    )


def threshold_of(scorer: Scorer, options: LabelOptions) -> float:
    """The threshold for `max_error`; raises InputError if the memory has no rows for it, or too few."""
    most, memory, stored = options.max_error, scorer.memory, scorer.memory.provenance.calibrated
    assert most is not None

    def refused(reason: str) -> InputError:
        return InputError.of("max_error", most, reason)

    if scorer.gives_several:
        raise refused(f"the rows of {memory.name} may have several labels; omit it")
    if options.threshold is not None:
        raise refused(f"finds the threshold itself; omit {option('threshold')}")
    if scorer.others or len(memory.iterations) > 1:
        raise refused(f"is for one memory at its last iteration; omit {option('ensemble')} and {option('iteration')}")
    if stored is not None and stored.held_out is not None and scorer.calibrate[:1] != (STORED,):
        raise refused(f"is of the correction that {memory.name} stores; omit {option('calibrate')}")
    needed = fewest(most)
    again = f"with deepthink calibrate {memory.name} ROWS {option('calibrate')} {HEAD}"
    if stored is None or stored.held_out is None:
        raise refused(f"{memory.name} has no labelled rows for it; store {needed} or more {again}")
    if memory.iterations[-1] != max(map(int, stored.at_iterations)):
        last = max(map(int, stored.at_iterations))
        raise refused(f"its rows are of T = {last}, not of T = {memory.iterations[-1]}; omit {option('iteration')}")
    if (found := bound(stored.held_out, most)) is None:
        rows = len(stored.held_out.right) + len(stored.held_out.wrong)
        if rows < needed:
            raise refused(f"needs {needed} labelled inputs, and {memory.name} has {rows}; store more {again}")
        larger = (share / 100 for share in range(1, 51) if share / 100 > most)
        least = next((share for share in larger if bound(stored.held_out, share)), None)
        shown = f"the {rows} labelled inputs of {memory.name}, of which it labels {len(stored.held_out.wrong)} wrongly"
        less = "" if least is None else f"give {least:g}, the least that they show, or "
        raise refused(f"not shown by {shown}; {less}store more {again}")
    return found.threshold


def input_fields(options: LabelOptions, checked: CheckedRows | None, table: bool) -> dict[str, Kind] | None:
    """The fields of the inputs with their kinds; None for inputs that are read once.

    Raises InputError for a kept field that no row has, and for a table of very many different fields.
    """
    if checked is None:
        return None
    for name in options.columns or ():
        if name not in checked.fields:
            known = ", ".join(list(checked.fields)[:20])
            raise InputError.of("columns", name, f"no row has this field; the rows have {known}")
    if table and options.columns is None and len(checked.fields) >= MAX_FIELDS:
        raise InputError.of(
            "columns", "all", f"the rows have {MAX_FIELDS:,} different fields or more; name some of them"
        )
    return {name: kind or "text" for name, kind in checked.fields.items()}


@dataclass
class RowCounts:
    """The numbers of rows, of written `lines`, of rows without a prediction or a label, and the first errors."""

    rows: int = 0
    lines: int = 0
    errors: int = 0
    unlabelled: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count output rows; the output rows of one input, for several iterations, count as one row."""
        for row in rows:
            self.rows, self.lines = row["index"] + 1, self.lines + 1
            if "error" in row:
                self.skip(row["error"])
            else:
                self.unlabelled += "label" in row and row["label"] is None

    def skip(self, error: str) -> None:
        """Count a row that was skipped for an error."""
        self.errors += 1
        if len(self.first) < _SHOWN:
            self.first.append(error)

    def tell(self, tell: Tell, threshold: float | None = None) -> None:
        """Tell the number of rows without a label because of the threshold; name the first skipped rows."""
        if threshold is not None:
            tell(Note(f"no label: {self.unlabelled:,} of {self.lines:,} rows, with a probability below {threshold:g}"))
        for error in self.first:
            tell(Warn(f"skipped: {error}"))
        if self.errors > len(self.first):
            tell(Warn(f"skipped: {self.errors - len(self.first):,} more rows"))

    def check(self, allowed: int | None) -> None:
        """Raise DeepThinkError if more rows were skipped than are allowed."""
        if self.errors > (allowed or 0):
            limit = (
                f"more than {option('allow_errors')} {allowed}"
                if allowed
                else f"see above; {option('allow_errors')} N accepts N"
            )
            raise DeepThinkError(f"{self.errors:,} of {self.rows:,} rows were skipped, {limit}")


@dataclass
class RowWriter:
    """Numbers the rows of answers that come in parts, writes and counts them; `index` is the index of the next row."""

    form: OutputRows
    write: Write
    index: int = 0
    counts: RowCounts = field(default_factory=RowCounts)

    def __call__(self, part: Sequence[Any]) -> None:
        """Write the rows of a part."""
        rows = []
        for each in part:
            rows.append(self.form.row(self.index, each))
            self.index += isinstance(each, Skipped) or each.iteration == self.form.iterations[-1]
        self.write(rows)
        self.counts.add(rows)

    def write_all(self, parts: Iterable[Sequence[Any]]) -> RowCounts:
        """Write all parts; returns the counts."""
        for part in parts:
            self(part)
        return self.counts
