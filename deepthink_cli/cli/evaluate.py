"""`deepthink eval`: measure the accuracy of a memory on labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.calibration.registry import NONE, calibrations
from deepthink_cli.cli.about import about
from deepthink_cli.cli.accuracy import show, show_label_sets
from deepthink_cli.cli.console import Show, note
from deepthink_cli.cli.data_options import (
    LABELLED_ROWS,
    Calibrate,
    DataDir,
    EnsembleFiles,
    IterationChoice,
    Labels,
    MemoryFile,
    ProtocolName,
    RowArguments,
    TaskName,
    values_of_memory,
)
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments, Details, for_memory
from deepthink_cli.cli.output_options import Watching, observed
from deepthink_cli.cli.scoring_options import OpenerOptions, ScoringOptions
from deepthink_cli.cli.values import read_by
from deepthink_cli.data.rows import check_rereadable
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.evaluation.threshold import Threshold
from deepthink_cli.experiments.experiment import RunCode
from deepthink_cli.io.tables import check_suffix, writing_rows
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag, Options
from deepthink_cli.prediction.options import ErrorOptions
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.selection.options import Limit, TaskOptions

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.data.examples import Skipped
    from deepthink_cli.evaluation.report import EvaluationReport, LabelSetsReport
    from deepthink_cli.events import Tell
    from deepthink_cli.prediction.rows import RowCounts
    from deepthink_cli.prediction.scorer import Scorer
    from deepthink_cli.scoring.prediction import Prediction
    from deepthink_cli.tasks.rows import EvaluatedRows
    from deepthink_cli.tasks.sources import Source

    EvalObservers = Options
else:
    EvalObservers = observed("eval")

Labelled = Annotated[
    str | None,
    typer.Argument(
        metavar="LABELLED",
        help=f"Rows with their true labels: {LABELLED_ROWS}. Without them, --task names the rows.",
    ),
]
Output = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Output file of the rows, one for each input and iteration, as of predict.",
        "FILE",
        short="-o",
        variable=False,
    ),
]
FailUnder = Annotated[
    str | None,
    Flag(
        OUTPUT,
        "Exit with 3 if the accuracy at the last T is below this share, or another metric, as in macro_f1=0.8.",
        "[METRIC=]VALUE",
        variable=False,
    ),
]


@about(
    "eval mem.safetensors rows.csv --fail-under 0.8 -o rows.jsonl",
    first="task protocol limit data_dir at calibrate output html details fail_under json",
)
@grouped
def evaluate(
    context: typer.Context,
    memory: MemoryFile,
    labelled: Labelled = None,
    output: Output = None,
    *,
    watching: Given[EvalObservers],
    fail_under: FailUnder = None,
    details: Details = False,
    at: IterationChoice = "all",
    calibrate: Calibrate = None,
    ensemble: EnsembleFiles = None,
    errors: Given[ErrorOptions],
    scoring: Given[ScoringOptions],
    own: Given[OpenerOptions],
    model: Given[ModelOptions],
    task: TaskName = None,
    protocol: ProtocolName = "official",
    limit: Limit = None,
    data_dir: DataDir = None,
    run_code: RunCode = False,
    labels: Labels = None,
    reading: RowArguments,
    common: CommonArguments,
) -> None:
    """Measure accuracy on labelled rows, beside that of T = 1.

    T = 1 is plain in-context learning.
    """
    from deepthink_cli.artifact.opening import open_for_scoring
    from deepthink_cli.evaluation.report import LabelSetsReport
    from deepthink_cli.prediction.scorer import Scorer
    from deepthink_cli.scoring.inputs import check_rows
    from deepthink_cli.tasks.rows import in_columns
    from deepthink_cli.tasks.sources import source_of

    model, problems, files = for_memory(context, model), Problems(), ensemble or []
    observers = Watching("eval", watching)
    options = problems.tried(model.checked)
    paths: dict[str, Any] = {"model": model.model, "task": task, "data_dir": data_dir, "config": common.config}
    problems.tried(lambda: _check_outputs(output, observers, read_by(memory, labelled, *files, **paths)))
    names = problems.tried(calibrations, calibrate, stored=True) or ()
    threshold = None if fail_under is None else problems.tried(Threshold.of, fail_under)
    failing, steps = problems.tried(errors.checked), problems.tried(Scoring.of, **scoring.changed)
    row_limit = problems.tried(TaskOptions.checked, limit=limit)
    source = problems.tried(source_of, data_dir, model.offline)
    with problems.collected():
        opened = open_for_scoring(memory, at, own.changed)
        generates = problems.tried(_check_choice, labelled, task, protocol, opened)
        # Generated answers are not corrected, whatever the memory stores.
        used = names or ((NONE,) if generates else ())
        scorer = problems.tried(
            Scorer.open, opened, iteration=at, scoring=steps or PLAIN, calibrate=used, ensemble=files
        )
        rows = reading.source(labelled, values_of_memory(context, labelled, labels), Show(common))
        if rows is not None:
            rows = in_columns(opened, rows, task)
            if problems.found:  # problems of the rows are reported with the others
                skip = errors.on_error == "skip"
                check_rows(opened.provenance.demonstrations, rows, labelled=True, skip=skip)
    problems.raise_any()
    chosen = rows or _TaskRows(str(task), protocol, source, run_code)
    request = _Request(scorer, chosen, row_limit.limit, options, output, observers, failing, threshold, common)
    if scorer.gives_several:
        _check_several(request, task)
    result, counts = _evaluate(request)
    if threshold is not None:
        result = replace(result, metric=threshold.metric)
    if isinstance(result, LabelSetsReport):
        show_label_sets(result, common.as_json)
    else:
        show(result, common.as_json, details)
        for sentence in result.advice:
            note(f"next: {sentence}", common.quiet)
    counts.check(failing.allow_errors)
    if threshold is not None:
        threshold.check(result.judged)


@dataclass(frozen=True)
class _Request:
    """The checked request of an evaluation: rows, scorer and outputs."""

    scorer: Scorer
    chosen: _TaskRows | RowSource
    limit: int | None
    options: ModelOptions
    output: Path | None
    observers: Watching
    errors: ErrorOptions
    threshold: Threshold | None
    common: CommonArguments


def _check_several(request: _Request, task: str | None) -> None:
    """Raise InputError for options that rows with several labels do not support: they need a file of rows."""
    if not isinstance(request.chosen, RowSource) or request.observers.given:
        name, given = next(iter(request.observers.given.items()), ("task", task))
        reason = "has no meaning for a memory whose rows may have several labels; evaluate a file of them with -o"
        raise InputError.of(name, given, reason)


def _check_outputs(output: Path | None, observers: Watching, read: Sequence[str | Path]) -> None:
    """Raise InputError for a suffix that no format has, or if an output would overwrite a file that is read."""
    from deepthink_cli.outputs import check_apart

    if output is not None:
        check_apart(output, read)
        check_suffix(output)
    observers.check(read)


@dataclass(frozen=True)
class _TaskRows:
    """The rows of a task under a protocol."""

    task: str
    protocol: str
    source: Source
    run_code: bool


def _evaluate(request: _Request) -> tuple[EvaluationReport | LabelSetsReport, RowCounts]:
    """Evaluate the memory on the rows that were chosen; also counts the rows that are skipped."""
    from deepthink_cli.evaluation.evaluate import evaluate as evaluation_of
    from deepthink_cli.evaluation.evaluate import evaluate_label_sets
    from deepthink_cli.evaluation.report import EvaluationEnded, EvaluationStarted, LabelSetsReport, RowPredicted
    from deepthink_cli.prediction.rows import RowCounts

    _check_model(request)
    with Show(request.common, bar=not request.common.as_json) as tell:
        rows = _rows(request, tell)
        told = request.observers.start(tell)
        told(EvaluationStarted(request.scorer.memory, request.scorer.calibrate))
        counts = RowCounts(rows.count)
        with _samples_file(request, rows) as write:

            def observe(prediction: Prediction) -> None:
                write(prediction)
                told(RowPredicted(prediction))

            def skip(row: Skipped) -> None:
                counts.skip(row)
                write(row)

            workflow = evaluate_label_sets if request.scorer.gives_several else evaluation_of
            skipping = skip if request.errors.skip else None
            result = workflow(request.scorer, rows, options=request.options, observe=observe, skip=skipping, tell=tell)
        counts.tell(tell)
        if not isinstance(result, LabelSetsReport):  # observers take reports of rows with one label only
            told(EvaluationEnded(result))
    return result, counts


def _rows(request: _Request, tell: Tell) -> EvaluatedRows:
    """The rows of a task or of the file; raises InputError for options that do not fit them."""
    from deepthink_cli.evaluation.evaluate import check_generated
    from deepthink_cli.tasks.rows import rows_of_file, rows_of_task

    chosen, memory = request.chosen, request.scorer.memory
    if isinstance(chosen, RowSource):
        rows = rows_of_file(memory, chosen, request.limit, request.errors.skip)
    else:
        rows = rows_of_task(memory, chosen.task, chosen.protocol, chosen.source, request.limit, tell, chosen.run_code)
        if rows.free is not None:
            check_generated(request.scorer, str(rows.task))
            for name, value in request.observers.given.items():
                raise InputError.of(name, value, f"task {rows.task} has free answers, without scores; use -o")
    if request.threshold is not None:
        several = request.scorer.gives_several
        request.threshold.check_possible(bool(request.scorer.demonstrations.labels), rows.free is None, several)
    return rows


def _check_model(request: _Request) -> None:
    """Raise InputError if an output would overwrite a file of the model."""
    from deepthink_cli.artifact.opening import model_options

    used = model_options(request.scorer.memory, request.options)
    _check_outputs(request.output, request.observers, read_by(model=used.model))


def _check_choice(labelled: str | None, task: str | None, protocol: str, memory: OpenedMemory) -> bool:
    """Whether the answers to the rows are generated; raises InputError unless there are rows that can be read again."""
    from deepthink_cli.tasks.catalogue import find_task
    from deepthink_cli.tasks.splits import check_protocol

    if labelled is not None:
        check_rereadable(labelled)
    if labelled is None and task is None:
        name = memory.provenance.task or "NAME"
        raise InputError(f"LABELLED: no rows; give a file of labelled rows, or --task {name}")
    if labelled is not None or task is None:
        return False
    check_protocol(found := find_task(task), protocol)
    return found.free is not None


@contextmanager
def _samples_file(request: _Request, rows: EvaluatedRows) -> Iterator[Callable[[Prediction | Skipped], object]]:
    """A function that writes a row for each prediction, if samples are wanted."""
    from deepthink_cli.prediction.rows import ABOUT, RowWriter, samples_rows

    if request.output is None:
        yield lambda row: None
        return
    form = samples_rows(request.scorer, rows, request.output, request.errors)
    with writing_rows(request.output, form.columns, "output", ABOUT) as write:
        put = RowWriter(form, write)
        yield lambda row: put([row])
