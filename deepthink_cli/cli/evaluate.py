"""`deepthink eval`: measure the accuracy of a memory on labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from deepthink_cli.calibration.registry import calibrations
from deepthink_cli.cli.about import about
from deepthink_cli.cli.accuracy import show, show_label_sets
from deepthink_cli.cli.console import Show, note
from deepthink_cli.cli.data_options import (
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
from deepthink_cli.cli.dry_run import DryRun, check_dry_run, show_estimate
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.opener_options import OpenerOptions
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.output_options import Watching, observed
from deepthink_cli.cli.values import read_by
from deepthink_cli.data.rows import check_rereadable
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.evaluation.progress import Evaluated, Evaluating, Predicted
from deepthink_cli.evaluation.threshold import Threshold
from deepthink_cli.experiments.experiment import RunCode
from deepthink_cli.io.tables import check_suffix, writing_rows
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag, Options, QueryOptions, Score
from deepthink_cli.prediction.options import ErrorOptions
from deepthink_cli.selection.options import Limit, TaskOptions

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.data.examples import Skipped
    from deepthink_cli.evaluation.evaluate import EvaluationReport
    from deepthink_cli.events import Tell
    from deepthink_cli.model.options import ModelOptions
    from deepthink_cli.options import ScoreName
    from deepthink_cli.prediction.rows import RowCounts
    from deepthink_cli.scoring.prediction import Prediction
    from deepthink_cli.tasks.evaluated import EvaluatedRows
    from deepthink_cli.tasks.sources import Source

T = TypeVar("T")
Labelled = Annotated[
    str | None,
    typer.Argument(
        metavar="[LABELLED]",
        help="Rows with their true labels: JSON Lines, JSON, CSV, TSV or Parquet, also .gz or .zst. "
        "Without them, --task names the rows.",
    ),
]
Output = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Output file of the rows, one for each input and iteration; the suffix decides the format, as for predict -o.",
        "FILE",
        short="-o",
        variable=False,
    ),
]
FailUnder = Annotated[
    str | None,
    Flag(
        OUTPUT,
        "Exit with 3 if the accuracy of the last iteration, with the correction in use, is below this share, as in "
        "0.8, or another metric below its value, as in macro_f1=0.8: accuracy_mean_per_token, macro_f1, "
        "log_probability; for several labels micro_f1, macro_f1, subset_accuracy.",
        "[METRIC=]VALUE",
        variable=False,
    ),
]

if TYPE_CHECKING:
    EvalObservers = Options
else:
    EvalObservers = observed("eval")


@about(
    "eval mem.safetensors rows.csv --fail-under 0.8 -o rows.jsonl",
    first="task protocol limit data_dir at calibrate output html fail_under dry_run json",
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
    dry_run: DryRun = False,
    at: IterationChoice = "all",
    calibrate: Calibrate = None,
    ensemble: EnsembleFiles = None,
    score: Score = "sum",
    errors: Given[ErrorOptions],
    query: QueryOptions,
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
    """Measure accuracy on labelled rows, beside that of T = 1."""
    from deepthink_cli.artifact.opening import open_for_scoring
    from deepthink_cli.calibration.basis import check_calibrations
    from deepthink_cli.multilabel import has_several
    from deepthink_cli.prediction.predict import open_ensemble
    from deepthink_cli.scoring.inputs import check_rows
    from deepthink_cli.tasks.rows import in_columns
    from deepthink_cli.tasks.sources import source_of

    model, problems, files = for_memory(context, model), Problems(), ensemble or []
    observers = Watching("eval", watching)
    with problems.collected():
        options = model.checked()
    paths: dict[str, Any] = {"model": model.model, "adapter": model.adapter}
    paths |= {"task": task, "data_dir": data_dir, "config": common.config}
    skip = errors.on_error == "skip"
    threshold: Threshold | None = None
    with problems.collected():
        _check_outputs(output, observers, read_by(memory, labelled, *files, **paths))
    names: tuple[str, ...] = ()
    with problems.collected():
        names = calibrations(calibrate, stored=True)
    if dry_run:
        with problems.collected():
            check_dry_run(observers.given)
    with problems.collected():
        threshold = None if fail_under is None else Threshold.of(fail_under)
    failing = ErrorOptions()
    with problems.collected():
        failing = errors.checked()
    with problems.collected():
        row_limit = TaskOptions.checked(limit=limit).limit
    with problems.collected():
        source = source_of(data_dir, model.offline)
    with problems.collected():
        opened = open_for_scoring(memory, at, own.changed).asked_again(query.reread).attending_to(query.nearest)
        with problems.collected():
            others = open_ensemble(opened, files, at)
        with problems.collected():
            _check_choice(labelled, task, protocol, opened)
        with problems.collected():
            check_calibrations(names, opened.provenance.demonstrations, opened.name)
        rows = reading.source(labelled, values_of_memory(context, labelled, labels), Show(common))
        if rows is not None:
            rows = in_columns(opened, rows, task)
            if problems.found:  # those of the rows are named with the others
                check_rows(opened.provenance.demonstrations, rows, problems, labelled=True, skip=skip)
    problems.raise_any()
    chosen = rows or _TaskRows(str(task), protocol, source, run_code)
    asked = _Asked(
        opened, others, chosen, row_limit, options, output, observers, failing, names, score, threshold, common
    )
    if has_several(opened.provenance):
        if not isinstance(chosen, RowSource) or observers.given:
            name, given = next(iter(observers.given.items()), ("task", task))
            raise InputError.of(name, given, SEVERAL)
        if dry_run:
            reason = "not for a memory whose rows may have several labels; deepthink predict estimates its time"
            raise InputError.of("dry_run", None, reason)
        return _evaluate_several(asked, chosen)
    if dry_run:
        return _estimate(asked)
    result, counts = _evaluate(asked)
    if threshold is not None:
        result = replace(result, metric=threshold.metric)
    show(result, common.as_json)
    for sentence in result.advice:
        note(f"next: {sentence}", common.quiet)
    counts.check(failing.allow_errors)
    if threshold is not None:
        threshold.check(result.judged)


SEVERAL = "has no meaning for a memory whose rows may have several labels; evaluate a file of them with -o"


@dataclass(frozen=True)
class _Asked:
    """What is evaluated and how, and where it is written."""

    memory: OpenedMemory
    ensemble: Sequence[OpenedMemory]
    chosen: _TaskRows | RowSource
    limit: int | None
    options: ModelOptions
    output: Path | None
    observers: Watching
    errors: ErrorOptions
    calibrate: tuple[str, ...]
    score: ScoreName
    threshold: Threshold | None
    common: CommonArguments


def _evaluate_several(asked: _Asked, chosen: RowSource) -> None:
    """Evaluate a memory whose rows may have several labels, and print the result."""
    from deepthink_cli.calibration.stored import in_use
    from deepthink_cli.evaluation.label_sets import evaluate_label_sets
    from deepthink_cli.prediction.rows import RowCounts
    from deepthink_cli.tasks.evaluated import rows_of_file

    assert not asked.ensemble  # open_ensemble refuses it
    in_use(asked.calibrate, [asked.memory], asked.score)  # refuses a stored correction, which there is none of
    with Show(asked.common, bar=not asked.common.as_json) as tell:
        if asked.threshold is not None:
            asked.threshold.check_possible(has_labels=True, has_scores=True, several=True)
        rows = rows_of_file(asked.memory, chosen, asked.limit, asked.errors.skip)
        counts = RowCounts(rows.count)
        with _samples_file(asked, rows, ()) as write:
            result = evaluate_label_sets(
                asked.memory,
                rows,
                options=asked.options,
                observe=write,
                score=asked.score,
                skip=_each([counts.skip, write]) if asked.errors.skip else None,
                truncate=asked.errors.truncate,
                tell=tell,
            )
        counts.tell(tell)
    if asked.threshold is not None:
        result = replace(result, metric=asked.threshold.metric)
    show_label_sets(result, asked.common.as_json)
    counts.check(asked.errors.allow_errors)
    if asked.threshold is not None:
        asked.threshold.check(result.judged)


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


def _evaluate(asked: _Asked) -> tuple[EvaluationReport, RowCounts]:
    """Evaluate the memory on the rows that were chosen; also counts the rows that are skipped."""
    from deepthink_cli.evaluation.evaluate import evaluate as evaluation_of
    from deepthink_cli.prediction.rows import RowCounts

    _check_model(asked)
    with Show(asked.common, bar=not asked.common.as_json) as tell:
        rows, calibrate = _rows(asked, tell)
        told = asked.observers.start(tell)
        told(Evaluating(asked.memory, calibrate))
        counts = RowCounts(rows.count)
        with _samples_file(asked, rows, calibrate) as write:
            result = evaluation_of(
                asked.memory,
                rows,
                options=asked.options,
                calibrate=calibrate,
                ensemble=asked.ensemble,
                score=asked.score,
                observe=_each([write, lambda prediction: told(Predicted(prediction))]),
                skip=_each([counts.skip, write]) if asked.errors.skip else None,
                truncate=asked.errors.truncate,
                tell=tell,
            )
        counts.tell(tell)
        told(Evaluated(result))
    return result, counts


def _estimate(asked: _Asked) -> None:
    """Label a sample of the rows, and print what the evaluation of all of them would take."""
    from deepthink_cli.evaluation.evaluate import probe_evaluation
    from deepthink_cli.prediction.rows import RowCounts, samples_rows

    _check_model(asked)
    errors = asked.errors
    with Show(asked.common, bar=not asked.common.as_json) as tell:
        rows, calibrate = _rows(asked, tell)
        if rows.free is not None:
            reason = f"not for task {rows.task}, whose answers are generated until they end; omit it"
            raise InputError.of("dry_run", None, reason)
        if asked.output is not None:
            samples_rows(asked.memory, rows, asked.output, calibrate, asked.score, errors)  # raises for wrong columns
        probed = probe_evaluation(
            asked.memory,
            rows,
            options=asked.options,
            calibrate=calibrate,
            ensemble=asked.ensemble,
            score=asked.score,
            skip=errors.skip,
            truncate=errors.truncate,
            tell=tell,
        )
        counts = RowCounts.of_skipped(probed.rows, probed.skipped if errors.skip else ())
        counts.tell(tell)
    show_estimate(probed, asked.common.as_json)
    counts.check(errors.allow_errors)


def _rows(asked: _Asked, tell: Tell) -> tuple[EvaluatedRows, tuple[str, ...]]:
    """The rows of a task or of the file, and the calibrations in use; raises InputError for options that do not fit."""
    from deepthink_cli.calibration.stored import in_use
    from deepthink_cli.tasks.evaluated import rows_of_file, rows_of_task

    chosen, demonstrations = asked.chosen, asked.memory.provenance.demonstrations
    if isinstance(chosen, RowSource):
        rows = rows_of_file(asked.memory, chosen, asked.limit, asked.errors.skip)
    else:
        where = (chosen.protocol, chosen.source, asked.limit, tell)
        rows = rows_of_task(asked.memory, chosen.task, *where, run_code=chosen.run_code)
        if rows.free is not None:
            for name, value in asked.observers.given.items():
                raise InputError.of(name, value, f"task {rows.task} has free answers, without scores; use -o")
    if asked.threshold is not None:
        asked.threshold.check_possible(bool(demonstrations.labels), rows.free is None)
    if rows.free is not None:
        return rows, asked.calibrate
    return rows, in_use(asked.calibrate, [asked.memory, *asked.ensemble], asked.score)


def _check_model(asked: _Asked) -> None:
    """Raise InputError if an output would overwrite a file of the model."""
    from deepthink_cli.artifact.opening import model_options

    used = model_options(asked.memory, asked.options)
    _check_outputs(asked.output, asked.observers, read_by(model=used.model, adapter=used.adapter))


def _each(observers: Sequence[Callable[[T], None] | None]) -> Callable[[T], None]:
    """One observer that calls all of those that are not None."""
    present = [observer for observer in observers if observer is not None]

    def observe(row: T) -> None:
        for observer in present:
            observer(row)

    return observe


def _check_choice(labelled: str | None, task: str | None, protocol: str, memory: OpenedMemory) -> None:
    from deepthink_cli.tasks.catalogue import find_task
    from deepthink_cli.tasks.splits import check_protocol

    if labelled is not None:
        check_rereadable(labelled)
    if labelled is None and task is None:
        name = memory.provenance.task or "NAME"
        raise InputError(f"LABELLED: no rows; give a file of labelled rows, or --task {name}")
    if labelled is None and task is not None:
        check_protocol(find_task(task), protocol)


@contextmanager
def _samples_file(
    asked: _Asked, rows: EvaluatedRows, calibrate: tuple[str, ...]
) -> Iterator[Callable[[Prediction | Skipped], None] | None]:
    """A function that writes a row for each prediction; None if no samples are wanted."""
    from deepthink_cli.prediction.rows import ABOUT, Numbered, samples_rows

    if asked.output is None:
        yield None
        return
    form = samples_rows(asked.memory, rows, asked.output, calibrate, asked.score, asked.errors)
    numbered = Numbered(form)
    with writing_rows(asked.output, form.columns, "output", ABOUT) as write:
        yield lambda row: write(numbered([row]))
