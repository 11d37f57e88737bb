"""`deepthink eval`: measure the accuracy of a memory on labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.accuracy import show
from deepthink_cli.cli.data_options import DataDir, Limit, ProtocolName, TaskName
from deepthink_cli.cli.grouped import grouped
from deepthink_cli.cli.method_options import IterationChoice
from deepthink_cli.cli.options import OUTPUT, CommonArguments, ModelArguments
from deepthink_cli.cli.predict import MemoryFile
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.show import Show
from deepthink_cli.errors import BelowThreshold, InputError, Problems
from deepthink_cli.io.text import json_line
from deepthink_cli.options import TaskOptions

if TYPE_CHECKING:
    from deepthink_cli.prediction import Prediction
    from deepthink_cli.workflows.memories import OpenedMemory

Labelled = Annotated[
    str | None,
    typer.Argument(
        metavar="[LABELLED]",
        help="Rows with their true labels: JSON Lines, CSV, TSV or Parquet. With --task, the task's rows are used.",
    ),
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Also write one JSON line for each input and iteration.",
    ),
]
FailUnder = Annotated[
    str | None,
    typer.Option(
        "--fail-under",
        metavar="SHARE",
        rich_help_panel=OUTPUT,
        help="Exit with 3 if the last iteration's accuracy is below this share, as in 0.8.",
    ),
]


@grouped
def evaluate(
    memory: MemoryFile,
    labelled: Labelled = None,
    samples: Samples = None,
    fail_under: FailUnder = None,
    iteration: IterationChoice = "all",
    *,
    model: ModelArguments,
    task: TaskName = None,
    protocol: ProtocolName = "official",
    limit: Limit = None,
    data_dir: DataDir = None,
    common: CommonArguments,
) -> None:
    """Measure accuracy on labelled rows, with plain in-context learning (T = 1), majority baseline and confusions."""
    from deepthink_cli.tasks.sources import source_of
    from deepthink_cli.workflows.evaluate import evaluate as evaluation_of
    from deepthink_cli.workflows.evaluated_rows import rows_of_file, rows_of_task
    from deepthink_cli.workflows.memories import model_options, open_memory
    from deepthink_cli.workflows.outputs import check_apart

    problems = Problems()
    with problems.collected():
        options = model.checked()
    with problems.collected():
        if samples is not None:
            read = read_by(memory, labelled, model=model.model, task=task, data_dir=data_dir, config=common.config)
            check_apart(samples, read, "--samples")
    with problems.collected():
        threshold = _share(fail_under)
    with problems.collected():
        row_limit = TaskOptions.checked(limit=limit).limit
    with problems.collected():
        source = source_of(data_dir, model.offline)
    opened = None
    with problems.collected():
        opened = open_memory(memory, iteration)
    with problems.collected():
        _check_choice(labelled, task, opened)
    if problems.messages or opened is None:
        _raise_all(problems, opened, None if task else labelled)
    assert opened is not None
    if samples is not None:
        check_apart(samples, read_by(model=model_options(opened, options).model), "--samples")
    with Show(common, bar=not common.json) as tell, _samples_file(samples, len({1, *opened.iterations})) as observe:
        if task is None:
            rows = rows_of_file(opened, str(labelled), row_limit)
        else:
            rows = rows_of_task(opened, task, protocol, source, row_limit, tell)
        evaluation = evaluation_of(opened, rows, options=options, observe=observe, tell=tell)
    show(evaluation, common.json)
    if threshold is not None and evaluation.accuracy < threshold:
        raise BelowThreshold(f"accuracy {evaluation.accuracy:.4f} is below --fail-under {fail_under}")


def _check_choice(labelled: str | None, task: str | None, memory: OpenedMemory | None) -> None:
    if labelled == "-":
        raise InputError("LABELLED -: evaluation reads its rows twice; give a file")
    if labelled is None and task is None:
        name = (memory.provenance.task if memory else None) or "NAME"
        raise InputError(f"LABELLED: no rows; give a file of labelled rows, or --task {name}")
    if labelled is not None and task is not None:
        raise InputError(f"LABELLED {labelled}: --task {task} has its own rows; give one of the two")


def _raise_all(problems: Problems, memory: OpenedMemory | None, labelled: str | None) -> None:
    """Raise all problems, including those of the rows if the memory can be read."""
    from deepthink_cli.workflows.inputs import check_rows

    if memory is not None and labelled not in (None, "-"):
        check_rows(memory.provenance.demonstrations, str(labelled), problems, labelled=True)
    problems.raise_any()


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


@contextmanager
def _samples_file(samples: Path | None, iterations: int) -> Iterator[Callable[[Prediction], None] | None]:
    """A function that writes one JSON line for each prediction; None if no samples are wanted."""
    from deepthink_cli.io.atomic import writing
    from deepthink_cli.workflows.inputs import output_row

    if samples is None:
        yield None
        return
    numbers = count()
    with writing(samples, "--samples") as out:

        def write(prediction: Prediction) -> None:
            row = output_row(next(numbers) // iterations, prediction, several=True)
            out.write(json_line({**row, "gold": prediction.query.gold}))

        yield write
