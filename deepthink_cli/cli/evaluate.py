"""`deepthink eval`: how well a memory labels rows whose labels are known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from deepthink_cli.cli import options
from deepthink_cli.cli.accuracy import Rows, show
from deepthink_cli.cli.console import progress
from deepthink_cli.cli.inputs import Checked, check_inputs, check_tokens, output_row
from deepthink_cli.cli.predict import MemoryFile
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.tasking import announce, check_memory, source_of, task_options, warn_of_leaks
from deepthink_cli.cli.values import model_options
from deepthink_cli.errors import BelowThreshold, InputError, Problems
from deepthink_cli.io.text import json_line

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Artifact, Header
    from deepthink_cli.data.examples import Query
    from deepthink_cli.evaluation import Evaluation
    from deepthink_cli.model.spec import ModelSpec
    from deepthink_cli.tasks.sources import Source

Labelled = Annotated[
    str | None,
    typer.Argument(
        metavar="[LABELLED]",
        help="Rows with their true labels: JSON Lines, CSV, TSV or Parquet. With --task the task's rows are taken.",
    ),
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="FILE",
        rich_help_panel=options.OUTPUT,
        help="Also write one JSON line for each input and iteration.",
    ),
]
FailUnder = Annotated[
    str | None,
    typer.Option(
        "--fail-under",
        metavar="SHARE",
        rich_help_panel=options.OUTPUT,
        help="Exit with 3 where the last iteration's accuracy is below this share, as in 0.8.",
    ),
]


@dataclass(frozen=True)
class _Inputs:
    """The queries to be evaluated, how many they are, where they come from, and what was seen of a file's."""

    queries: Iterable[Query]
    count: int
    rows: Rows
    checked: Checked | None = None


def evaluate(
    memory: MemoryFile,
    labelled: Labelled = None,
    samples: Samples = None,
    fail_under: FailUnder = None,
    iteration: options.IterationChoice = "all",
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = options.DtypeName.auto,
    device: options.Device = "auto",
    device_map: options.DeviceMap = None,
    quantize: options.Quantize = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    batch_tokens: options.BatchTokens = None,
    task: options.TaskName = None,
    protocol: options.ProtocolName = "official",
    limit: options.Limit = None,
    data_dir: options.DataDir = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    config: options.Config = None,
) -> None:
    """Accuracy of a memory on labelled rows, next to plain in-context learning (T = 1) and the majority class."""
    from deepthink_cli.cli.recall import memory_options, open_its_model, open_memory
    from deepthink_cli.workflows.outputs import check_apart

    problems = Problems()
    with problems.collected():
        typed = model_options(
            model, revision, dtype, device, device_map, quantize, offline, trust_remote_code, batch_tokens
        )
    with problems.collected():
        if samples is not None:
            read = read_by(memory, labelled, model=model, task=task, data_dir=data_dir, config=config)
            check_apart(samples, read, "--samples")
    with problems.collected():
        threshold = _share(fail_under)
    with problems.collected():
        most = task_options(limit=limit).limit
    with problems.collected():
        source = source_of(data_dir, offline)
    artifact = None
    with problems.collected():
        artifact = open_memory(memory, iteration)
    header = artifact.header if artifact else None
    with problems.collected():
        _check_choice(labelled, task, header)
    if problems.messages or header is None:
        _raise_all(problems, header, None if task else labelled)
    assert artifact is not None
    assert header is not None
    chosen = memory_options(header, typed, model)
    if samples is not None:
        check_apart(samples, read_by(model=chosen.model), "--samples")
    inputs = _inputs(header, labelled, task, protocol, source, most, quiet)
    spec = open_its_model(header, chosen, quiet)
    check_tokens(header, spec, str(labelled), inputs.checked)
    started = time.perf_counter()
    evaluation = _evaluate(artifact, spec, inputs, samples, quiet or json, verbose)
    show(header, evaluation, inputs.rows, time.perf_counter() - started, json)
    if threshold is not None and evaluation.last.accuracy < threshold:
        raise BelowThreshold(f"accuracy {evaluation.last.accuracy:.4f} is below --fail-under {fail_under}")


def _check_choice(labelled: str | None, task: str | None, header: Header | None) -> None:
    if labelled == "-":
        raise InputError("LABELLED -: evaluation reads its rows twice; give a file")
    if labelled is None and task is None:
        name = (header.metadata.task if header else None) or "NAME"
        raise InputError(f"LABELLED: no rows; give a file of labelled rows, or --task {name}")
    if labelled is not None and task is not None:
        raise InputError(f"LABELLED {labelled}: --task {task} brings its own rows; give one of the two")


def _raise_all(problems: Problems, header: Header | None, labelled: str | None) -> None:
    """Raise what was found, with the mistakes of the rows, where they can be read, beside it."""
    if header is not None and labelled not in (None, "-"):
        check_inputs(header, str(labelled), problems, labelled=True)
    problems.raise_any()


def _inputs(
    header: Header,
    labelled: str | None,
    task: str | None,
    protocol: str,
    source: Source,
    limit: int | None,
    quiet: bool,
) -> _Inputs:
    if task:
        return _from_task(header, task, protocol, source, limit, quiet)
    return _from_file(header, str(labelled), limit)


def _from_file(header: Header, labelled: str, limit: int | None) -> _Inputs:
    from deepthink_cli.data.examples import read_queries
    from deepthink_cli.tasks.splits import sampled

    problems = Problems()
    checked = check_inputs(header, labelled, problems, labelled=True)
    problems.raise_any()
    assert checked is not None
    places = frozenset(sampled(range(checked.count), limit))
    queries = read_queries(labelled, header.metadata.template, header.metadata.labels, labelled=True)
    chosen = (query for place, query in enumerate(queries) if place in places)
    return _Inputs(chosen, len(places), Rows(labelled, None, None, Counter()), checked)


def _from_task(header: Header, name: str, protocol: str, source: Source, limit: int | None, quiet: bool) -> _Inputs:
    from deepthink_cli.tasks.catalogue import find_task
    from deepthink_cli.tasks.splits import evaluation_set

    task = find_task(name)
    check_memory(header, task)
    announce(source, 1, quiet)
    evaluated = evaluation_set(task, protocol, source, limit)
    warn_of_leaks(header, evaluated, quiet)
    rows = Rows(evaluated.split, task.name, evaluated.protocol, evaluated.skipped)
    return _Inputs(evaluated, len(evaluated), rows)


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"--fail-under {text}: a share between 0 and 1, as in 0.8")
    return share


def _evaluate(
    artifact: Artifact, spec: ModelSpec, inputs: _Inputs, samples: Path | None, quiet: bool, verbose: bool
) -> Evaluation:
    from deepthink_cli.cli.recall import load_both
    from deepthink_cli.evaluation import Evaluator, evaluated, with_first_reading

    model, stored = load_both(artifact, spec, quiet, verbose)
    memories = with_first_reading(model, stored)
    evaluator = Evaluator([one.iteration for one in memories], artifact.header.metadata.labels)
    with ExitStack() as stack:
        out = stack.enter_context(_samples_file(samples))
        shown = stack.enter_context(progress(quiet))
        bar = shown.add_task("evaluating", total=inputs.count)
        for number, prediction in enumerate(evaluated(model, memories, inputs.queries, inputs.rows.skipped)):
            evaluator.add(prediction)
            if out is not None:
                row = output_row(number // len(memories), prediction, several=True)
                out.write(json_line({**row, "gold": prediction.query.gold}))
            if (number + 1) % len(memories) == 0:
                shown.advance(bar)
    return evaluator.result()


def _samples_file(samples: Path | None) -> AbstractContextManager[TextIO | None]:
    from deepthink_cli.io.atomic import writing

    return nullcontext(None) if samples is None else writing(samples, "--samples")
