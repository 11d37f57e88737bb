"""`deepthink predict`: label the rows of a file, a folder or a stream with a memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from deepthink_cli.calibration.registry import calibrations, from_rows
from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, duration, note, report, write_json, write_text
from deepthink_cli.cli.data_options import (
    TEXT_ROWS,
    Calibrate,
    EnsembleFiles,
    IterationChoice,
    MemoryFile,
    RowArguments,
    TaskName,
)
from deepthink_cli.cli.executor_options import Workers, place_of, started
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.scoring_options import OpenerOptions, ScoringOptions
from deepthink_cli.cli.values import check_given, read_by
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError, Problem, Problems, option
from deepthink_cli.io.tables import check_suffix, is_table, separated
from deepthink_cli.io.text import json_line
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.scoring.scoring import PLAIN, Scoring

if TYPE_CHECKING:
    from deepthink_cli.cli.executor_options import Machines
    from deepthink_cli.data.examples import Skipped
    from deepthink_cli.io.tables import Row, Write
    from deepthink_cli.prediction.predict import Labelling
    from deepthink_cli.prediction.rows import OutputRows, RowCounts
    from deepthink_cli.prediction.scorer import LabelRows
    from deepthink_cli.scoring.prediction import Prediction
    from deepthink_cli.scoring.probe import Probed


Inputs = Annotated[
    str,
    typer.Argument(
        metavar="INPUTS", help=f"Inputs: {TEXT_ROWS}; - for stdin. A row may have its own candidates: [...]."
    ),
]
Output = Annotated[
    Path | None,
    Flag(
        OUTPUT,
        "Output file: .jsonl, .csv, .tsv or .parquet. Default: JSON Lines on stdout.",
        "FILE",
        short="-o",
        variable=False,
    ),
]
OutputFormat = Annotated[Literal["jsonl", "csv", "tsv"], Flag(OUTPUT, "Format of rows on stdout.", variable=False)]
Flush = Annotated[
    bool, Flag(OUTPUT, "Label the rows of a stream as they arrive, without waiting for 256 of them.", variable=False)
]
DryRun = Annotated[
    bool,
    Flag(
        OUTPUT,
        "Write nothing: check everything, time at most 64 rows, and print what all rows would take.",
        variable=False,
    ),
]
ShowPrompt = Annotated[
    bool,
    Flag(OUTPUT, "Label nothing: print the text of the tokens that the model reads for the first row.", variable=False),
]
Resume = Annotated[
    bool,
    Flag(
        OUTPUT,
        "Keep the rows of an interrupted labelling in FILE.partial; the same command continues it.",
        variable=False,
    ),
]


@about(
    "predict mem.safetensors inputs.csv.gz -o labels.csv --on-error skip",
    first="output resume dry_run calibrate top max_error on_error",
)
@grouped
def predict(
    context: typer.Context,
    memory: MemoryFile,
    inputs: Inputs,
    output: Output = None,
    output_format: OutputFormat = "jsonl",
    flush: Flush = False,
    show_prompt: ShowPrompt = False,
    resume: Resume = False,
    dry_run: DryRun = False,
    at: IterationChoice = "last",
    calibrate: Calibrate = None,
    ensemble: EnsembleFiles = None,
    task: TaskName = None,
    workers: Workers = None,
    *,
    reading: RowArguments,
    labels: Given[LabelOptions],
    errors: Given[ErrorOptions],
    scoring: Given[ScoringOptions],
    own: Given[OpenerOptions],
    model: Given[ModelOptions],
    common: CommonArguments,
) -> None:
    """Label inputs with a memory: one row for each, in order.

    The model, the template and the labels come from the memory. A label's probability is its share among the
    candidates. Only after a correction by labelled rows does it say how often labels are right.
    """
    from deepthink_cli.artifact.format import read_header
    from deepthink_cli.artifact.opening import model_options, open_for_scoring
    from deepthink_cli.calibration.notes import check_supported
    from deepthink_cli.prediction.files import check_resume
    from deepthink_cli.prediction.predict import Labelling, first_prompt
    from deepthink_cli.prediction.rows import output_rows
    from deepthink_cli.prediction.scorer import Scorer
    from deepthink_cli.scoring.inputs import check_rows
    from deepthink_cli.tasks.rows import in_columns

    output = None if str(output) == "-" else output
    model, problems, files = for_memory(context, model), Problems(), ensemble or []
    problems.tried(check_given, context, "predict")
    options = problems.tried(model.checked)
    names = problems.tried(calibrations, calibrate, stored=True)
    chosen, failing = problems.tried(labels.checked), problems.tried(errors.checked)
    steps = problems.tried(Scoring.of, **scoring.changed)
    source = problems.tried(reading.of, inputs, None, Show(common))
    place = problems.tried(place_of, workers)
    if dry_run and (rows := RowSource(inputs)).read_once:
        problems.add(Problem.of("dry_run", None, f"{rows.name} can be read only once; give a file"))
    paths: dict[str, Any] = {"model": model.model, "task": task, "config": common.config}
    problems.tried(lambda: check_output(output, read_by(memory, inputs, *files, **paths), resume))
    if resume:
        problems.tried(check_resume, output, inputs)
    problems.tried(_check_stream, inputs, flush, workers, names or ())
    if output is not None and output_format != "jsonl":
        problems.add(Problem.of("output_format", output_format, f"{output} is a file, whose suffix names it; omit one"))
    checked = None
    with problems.collected():
        opened = open_for_scoring(memory, at, own.changed)
        if workers is not None:
            read_header(memory)  # refuses other files, which workers do not read
        scorer = problems.tried(
            Scorer.open, opened, iteration=at, scoring=steps or PLAIN, calibrate=names or (), ensemble=files
        )
        source = in_columns(opened, source or RowSource(inputs), task)
        if not show_prompt:
            skip = errors.on_error == "skip"
            checked = problems.tried(check_rows, opened.provenance.demonstrations, source, skip=skip)
            check_supported(scorer.calibrate if scorer else names or (), None if skip else checked)
    problems.raise_any()
    if show_prompt:
        with Show(common) as tell:
            prompt, lines = first_prompt(scorer, source, options, tell)
        write_text(prompt + "\n")
        for line in lines:
            note(line, common.quiet)
        return
    check_output(output, read_by(model=model_options(opened, options).model), resume)
    table = output_format != "jsonl" if output is None else is_table(output)
    form = output_rows(scorer, checked, table, chosen, failing)
    labelling = Labelling(scorer, source, checked, options, failing.skip, form.by_label)
    if dry_run:
        counts = _estimate(labelling, common)
    else:
        counts = _label(labelling, form, common, place, output, output_format, flush, resume)
    if output is not None and not dry_run:
        what = "fitted to labelled rows" if form.fitted else "a share among the labels"
        share = "" if scorer.gives_several else f"; a probability is {what}"
        note(f"wrote {output} ({counts.lines} rows{share})", common.quiet)
    counts.check(failing.allow_errors)


def _label(
    labelling: Labelling,
    form: OutputRows,
    common: CommonArguments,
    place: Machines | None,
    output: Path | None,
    output_format: str,
    flush: bool,
    resume: bool,
) -> RowCounts:
    """Label the rows here or at a place, and write them as they come; with `resume`, to a file that is continued."""
    from deepthink_cli.artifact.opening import model_options
    from deepthink_cli.experiments.label_rows import RowLabels, divided
    from deepthink_cli.prediction.files import identity_of, resume_labels, write_labels
    from deepthink_cli.scoring.pipeline import CHUNK

    scorer, checked = labelling.scorer, labelling.checked
    # Lines typed at a terminal are scored one by one, unless their labels depend on each other; other rows in batches.
    typed = labelling.source.is_stdin and sys.stdin.isatty() and not from_rows(scorer.calibrate)
    with ExitStack() as stack:
        tell = stack.enter_context(Show(common, bar=output is not None or not sys.stdout.isatty()))
        elsewhere: LabelRows | None = None
        if place is not None:
            executor = stack.enter_context(started(place, model_options(scorer.memory, labelling.options).device))
            elsewhere = partial(divided, executor, scorer, RowLabels.of(scorer, labelling.options, labelling.skip))
        label = partial(labelling, tell, elsewhere, size=1 if typed else CHUNK, flush=flush)
        if output is None:
            counts = print_rows(label(), form, output_format)
        elif not resume or checked is None:
            counts = write_labels(label, output, form, tell, again=checked is not None)
        else:
            counts = resume_labels(label, output, form, identity_of(labelling, form), checked.count, tell)
        counts.tell(tell, form.options.threshold)
    return counts


def _estimate(labelling: Labelling, common: CommonArguments) -> RowCounts:
    """Label a sample of the rows, and print the cost of all rows."""
    from deepthink_cli.prediction.rows import RowCounts

    with Show(common, bar=not common.as_json) as tell:
        probed = labelling.probe(tell)
        counts = RowCounts(probed.rows)
        for _, row in sorted(probed.skipped, key=itemgetter(0)):
            counts.skip(row.error)
        counts.tell(tell)
    _show_estimate(probed, common.as_json)
    return counts


def _check_stream(inputs: str, flush: bool, workers: str | None, calibrate: Sequence[str]) -> None:
    """Raise InputError for workers, which divide a file, and for `flush` where rows are a file or must wait."""
    source = RowSource(inputs)
    if workers is not None and source.read_once:
        reason = f"workers divide the rows of a file, and those of {source.name} arrive one by one"
        raise InputError.of("workers", workers, f"{reason}; give a file, or omit it")
    if flush and not source.read_once:
        raise InputError.of("flush", None, f"{inputs} is a file, whose rows are all there; omit it, or use -")
    if flush and (waiting := from_rows(calibrate)):
        reason = f"not with {option('calibrate')} {','.join(waiting)}, which is estimated from rows together; omit one"
        raise InputError.of("flush", None, reason)


def _show_estimate(probed: Probed, json: bool) -> None:
    """Print the cost of all rows."""
    if json:
        write_json(probed.as_json())
        return
    rates, seconds = "no row can be timed", probed.timed_seconds
    if probed.probed:
        rates = f"{probed.probed / seconds:,.1f} rows/s, {probed.timed_tokens / seconds:,.0f} tokens/s"
    report(
        f"rows     {probed.rows:,}, {len(probed.skipped):,} of them skipped",
        f"tokens   {'' if probed.exact else 'about '}{probed.tokens:,}, all candidates included",
        f"time     about {duration(probed.seconds)}, of which loading takes {probed.loading:.1f} s",
        f"probe    {probed.probed} rows in {seconds:.2f} s: {rates}",
        "output   not written: this is a dry run",
    )


def check_output(output: Path | None, read: list[str | Path], resume: bool) -> None:
    """Raise InputError for an output of unknown format, and for an output that would overwrite a file that is read."""
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.prediction.files import partial_of

    if output is not None:
        for path in (output, partial_of(output)) if resume else (output,):
            check_apart(path, read)
        check_suffix(output)


def print_rows(parts: Iterable[list[Prediction | Skipped]], form: OutputRows, output_format: str) -> RowCounts:
    """Print the rows on stdout as they come; returns their counts."""
    from deepthink_cli.prediction.rows import RowWriter

    write: Write = partial(write_lines, out=sys.stdout)
    if form.table:
        write = separated(sys.stdout, form.columns, "," if output_format == "csv" else "\t")

    def flushed(rows: Iterable[Row]) -> None:
        write(rows)
        sys.stdout.flush()

    return RowWriter(form, flushed).write_all(parts)


def write_lines(rows: Iterable[Row], out: TextIO) -> None:
    """Write JSON lines, each at once: an interrupt comes between two lines."""
    for row in rows:
        out.write(json_line(row))
        out.flush()
