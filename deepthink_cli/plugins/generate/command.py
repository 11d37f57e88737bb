"""`deepthink generate`: generate answers to inputs with a memory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, write_text
from deepthink_cli.cli.data_options import TEXT_ROWS, IterationChoice, MemoryFile, RowArguments, TaskName
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments, for_memory
from deepthink_cli.cli.predict import Output, check_output, write_lines
from deepthink_cli.cli.values import decoding_of, read_by
from deepthink_cli.data.source import COMPRESSIONS, STDIN, SUFFIXES, RowSource
from deepthink_cli.engine.decoding import Decoding
from deepthink_cli.errors import Problems
from deepthink_cli.events import Progress
from deepthink_cli.io.tables import Write, is_table, writing_rows
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions

if TYPE_CHECKING:
    from deepthink_cli.data.examples import Skipped
    from deepthink_cli.events import Tell
    from deepthink_cli.generation import Generation
    from deepthink_cli.plugins.generate.files import GeneratedRows
    from deepthink_cli.prediction.rows import RowCounts

Parts = Iterator[list["Generation | Skipped"]]
InputsOrText = Annotated[
    str, typer.Argument(metavar="INPUTS|TEXT", help=f"Inputs: {TEXT_ROWS}; - for stdin; or the text of one input.")
]


@about(
    "generate mem.safetensors questions.jsonl --max-new-tokens 100 -o answers.jsonl",
    first="output at task temperature top_p max_new_tokens stop seed columns on_error",
)
@grouped
def generate(
    context: typer.Context,
    memory: MemoryFile,
    inputs: InputsOrText,
    output: Output = None,
    at: IterationChoice = "last",
    task: TaskName = None,
    *,
    reading: RowArguments,
    decoding: Given[Decoding],
    labels: Annotated[Given[LabelOptions], Without("top", "threshold")],
    errors: Given[ErrorOptions],
    model: Given[ModelOptions],
    common: Annotated[CommonArguments, Without("json")],
) -> None:
    """Generate an answer to every input after a memory, in order.

    The model and the template come from the memory. An answer is what the model writes after the input, token by token,
    where `predict` compares labels. On a terminal it is plain text, elsewhere a row.
    """
    from deepthink_cli.artifact.opening import find_its_model, load_both, model_options, open_memory
    from deepthink_cli.generation import CHUNK, generate_or_skip
    from deepthink_cli.plugins.generate.files import GeneratedRows, check_prompts, rows_to_answer
    from deepthink_cli.prediction.rows import input_fields
    from deepthink_cli.scoring.inputs import check_rows
    from deepthink_cli.tasks.rows import in_columns

    output = None if str(output) == "-" else output
    model, problems = for_memory(context, model), Problems()
    skip = errors.on_error == "skip"
    options = problems.tried(model.checked)
    chosen = problems.tried(decoding_of, decoding)
    columns = problems.tried(labels.checked)
    failing = problems.tried(errors.checked)
    paths: dict[str, Any] = {"model": model.model, "task": task, "config": common.config}
    problems.tried(lambda: check_output(output, read_by(memory, inputs, **paths), False))
    with problems.collected():
        opened = open_memory(memory, at)
        source = in_columns(opened, _source(inputs, reading, Show(common)), task, free=True)
        checked = check_rows(opened.provenance.demonstrations, source, skip=skip, free=True)
    problems.raise_any()
    check_output(output, read_by(model=model_options(opened, options).model), False)
    several, table = len(opened.iterations) > 1, output is not None and is_table(output)
    fields = input_fields(columns, checked, table)
    form = GeneratedRows(opened.iterations, (), options=columns, fields=fields, table=table, several=several, skip=skip)
    plain = output is None and sys.stdout.isatty()
    with Show(common, bar=not plain) as tell:
        spec = find_its_model(opened, options, tell)
        if checked is not None and not skip:
            check_prompts(opened, spec, source, checked, chosen)
        engine, memories = load_both(opened, spec, tell)
        chunk = 1 if plain or (source.is_stdin and sys.stdin.isatty()) else CHUNK
        rows = rows_to_answer(opened, source, checked, skip)
        parts = generate_or_skip(engine, memories, rows, chosen, chunk, skip, write_text if plain else None)
        total = None if checked is None else checked.count
        counts = _write(parts, form, output, plain, lambda done: tell(Progress("generating", done, total)))
        counts.tell(tell)
    if output is not None:
        note(f"wrote {output} ({counts.lines} rows)", common.quiet)
    counts.check(failing.allow_errors)


def _source(inputs: str, reading: RowArguments, tell: Tell) -> RowSource:
    """The file of inputs, or the text of an input: a text that is no file, without a file's suffix or a path's form."""
    suffix = Path(Path(inputs).stem if Path(inputs).suffix in COMPRESSIONS else inputs).suffix.lower()
    like_a_file = suffix in filter(None, SUFFIXES) or (os.sep in inputs and not re.search(r"\s", inputs))
    if reading == RowArguments() and not like_a_file and not os.path.exists(inputs) and inputs != STDIN:
        return RowSource(inputs, "txt", is_text=True)
    return reading.of(inputs, None, tell)


def _write(
    parts: Parts, form: GeneratedRows, output: Path | None, plain: bool, written: Callable[[int], None]
) -> RowCounts:
    """Write a row for each answer to a file, which appears when it is complete, or to stdout as they come.

    A `plain` answer is shown while it is generated, and ends with a line break. `written` is called with the number of
    answered inputs so far.
    """
    from deepthink_cli.prediction.rows import RowWriter

    printed: Write = (lambda rows: write_text("\n")) if plain else partial(write_lines, out=sys.stdout)
    with nullcontext(printed) if output is None else writing_rows(output, form.columns) as write:
        put = RowWriter(form, write)
        for part in parts:
            put(part)
            written(put.index)
    return put.counts
