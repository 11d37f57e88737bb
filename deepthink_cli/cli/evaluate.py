"""`deepthink eval`: measure the accuracy of a memory on labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.calibration.registry import NONE, calibrations
from deepthink_cli.cli.about import about
from deepthink_cli.cli.accuracy import show, show_label_sets
from deepthink_cli.cli.command import command_line
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
from deepthink_cli.cli.scoring_options import OpenerOptions, ScoringOptions
from deepthink_cli.cli.values import read_by
from deepthink_cli.data.rows import check_rereadable
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.evaluation.threshold import Threshold
from deepthink_cli.experiments.experiment import RunCode
from deepthink_cli.io.tables import check_suffix, is_table, writing_rows
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.observers import Watching, observed
from deepthink_cli.options import OUTPUT, Flag, Options
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.selection.options import Limit, TaskOptions

if TYPE_CHECKING:
    from deepthink_cli.artifact.opening import OpenedMemory
    from deepthink_cli.data.examples import Skipped
    from deepthink_cli.prediction.scorer import Scorer
    from deepthink_cli.scoring.prediction import Prediction
    from deepthink_cli.tasks.rows import EvaluatedRows

    EvalObservers = Options
else:
    EvalObservers = observed("eval")

Labelled = Annotated[
    str | None,
    typer.Argument(
        metavar="LABELLED", help=f"Rows with their true labels: {LABELLED_ROWS}. Without them, --task names the rows."
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
    first="task limit data_dir calibrate output html details fail_under json",
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
    from deepthink_cli.artifact.opening import model_options, open_for_scoring
    from deepthink_cli.evaluation import evaluate as workflow
    from deepthink_cli.evaluation import report
    from deepthink_cli.prediction.rows import RowCounts
    from deepthink_cli.prediction.scorer import Scorer
    from deepthink_cli.scoring.inputs import check_rows
    from deepthink_cli.tasks.rows import in_columns, rows_of_file, rows_of_task
    from deepthink_cli.tasks.sources import source_of

    model, problems, files = for_memory(context, model), Problems(), ensemble or []
    observers = Watching("eval", watching.changed)
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
                check_rows(opened.provenance.demonstrations, rows, True, errors.on_error == "skip")
    problems.raise_any()
    if scorer.gives_several and (rows is None or observers.given):
        name, given = next(iter(observers.given.items()), ("task", task))
        reason = "has no meaning for a memory whose rows may have several labels; evaluate a file of them with -o"
        raise InputError.of(name, given, reason)
    _check_outputs(output, observers, read_by(model=model_options(opened, options).model))
    with Show(common, bar=not common.as_json) as tell:
        if rows is not None:
            evaluated = rows_of_file(opened, rows, row_limit.limit, failing.skip)
        else:
            evaluated = rows_of_task(opened, str(task), protocol, source, row_limit.limit, tell, run_code)
        _check_rows(evaluated, scorer, threshold, observers)
        told, counts = observers.start(command_line(), tell), RowCounts(evaluated.count)
        told(report.EvaluationStarted(opened, scorer.calibrate))
        with _samples_file(output, scorer, evaluated, failing) as write:

            def observe(prediction: Prediction) -> None:
                write(prediction)
                told(report.RowPredicted(prediction))

            def skip(row: Skipped) -> None:
                counts.skip(row.error)
                write(row)

            evaluation_of = workflow.evaluate_label_sets if scorer.gives_several else workflow.evaluate
            skipping = skip if failing.skip else None
            result = evaluation_of(scorer, evaluated, options=options, observe=observe, skip=skipping, tell=tell)
        counts.tell(tell)
        if not isinstance(result, report.LabelSetsReport):  # observers take reports of rows with one label only
            told(report.EvaluationEnded(result))
    if threshold is not None:
        result = replace(result, metric=threshold.metric)
    if isinstance(result, report.LabelSetsReport):
        show_label_sets(result, common.as_json)
    else:
        show(result, common.as_json, details)
        for sentence in result.advice:
            note(f"next: {sentence}", common.quiet)
    counts.check(failing.allow_errors)
    if threshold is not None:
        threshold.check(result.judged)


def _check_outputs(output: Path | None, observers: Watching, read: Sequence[str | Path]) -> None:
    """Raise InputError for a suffix that no format has, or if an output would overwrite a file that is read."""
    from deepthink_cli.outputs import check_apart

    if output is not None:
        check_apart(output, read)
        check_suffix(output)
    observers.check(read)


def _check_rows(rows: EvaluatedRows, scorer: Scorer, threshold: Threshold | None, observers: Watching) -> None:
    """Raise InputError for options that do not fit the rows."""
    from deepthink_cli.evaluation.evaluate import check_generated

    if rows.free is not None:
        check_generated(scorer, str(rows.task))
        for name, value in observers.given.items():
            raise InputError.of(name, value, f"task {rows.task} has free answers, without scores; use -o")
    if threshold is not None:
        threshold.check_possible(bool(scorer.demonstrations.labels), rows.free is None, scorer.gives_several)


def _check_choice(labelled: str | None, task: str | None, protocol: str, memory: OpenedMemory) -> bool:
    """Whether the answers to the rows are generated; raises InputError unless there are rows that can be read again."""
    from deepthink_cli.tasks.catalogue import find_task
    from deepthink_cli.tasks.splits import check_protocol

    if labelled is not None:
        check_rereadable(labelled)
        return False
    if task is None:
        name = memory.provenance.task or "NAME"
        raise InputError(f"LABELLED: no rows; give a file of labelled rows, or --task {name}")
    check_protocol(found := find_task(task), protocol)
    return found.free is not None


@contextmanager
def _samples_file(
    output: Path | None, scorer: Scorer, rows: EvaluatedRows, errors: ErrorOptions
) -> Iterator[Callable[[Prediction | Skipped], object]]:
    """A function that writes a row for each prediction, if there is an output."""
    from deepthink_cli.prediction.rows import ABOUT, RowWriter, output_rows

    if output is None:
        yield lambda row: None
        return
    of_predict = output_rows(scorer, rows.checked, is_table(output), LabelOptions.checked(scores=True), errors)
    form = replace(of_predict, several=True, gold=True)
    with writing_rows(output, form.columns, "output", ABOUT) as write:
        put = RowWriter(form, write)
        yield lambda row: put([row])
