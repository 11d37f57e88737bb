"""`deepthink predict`: label inputs from a memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from select import PIPE_BUF
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from deepthink_cli.cli import options
from deepthink_cli.cli.console import note, progress
from deepthink_cli.cli.inputs import check_inputs, check_tokens, output_row
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.values import model_options
from deepthink_cli.errors import Problems
from deepthink_cli.io.text import json_line

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Artifact
    from deepthink_cli.model.spec import ModelSpec
    from deepthink_cli.prediction import Prediction

MemoryFile = Annotated[Path, typer.Argument(metavar="MEMORY", help="A file written by deepthink think.")]
Inputs = Annotated[
    str,
    typer.Argument(
        metavar="INPUTS",
        help="Rows to label: JSON Lines, CSV, TSV or Parquet; - for JSON Lines on stdin. A row may carry its own candidates: [...].",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=options.OUTPUT, help="Where the rows go. Default: stdout."
    ),
]


def predict(
    memory: MemoryFile,
    inputs: Inputs,
    output: Output = None,
    iteration: options.IterationChoice = "last",
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = options.DtypeName.auto,
    device: options.Device = "auto",
    device_map: options.DeviceMap = None,
    quantize: options.Quantize = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    batch_tokens: options.BatchTokens = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    config: options.Config = None,
) -> None:
    """Label inputs from a memory: one JSON line for each, in order.

    The model, the template and the labels come from the memory.
    """
    from deepthink_cli.cli.recall import memory_options, open_its_model, open_memory
    from deepthink_cli.io.atomic import writing
    from deepthink_cli.io.prefetch import behind
    from deepthink_cli.workflows.outputs import check_apart

    if output is not None and str(output) == "-":
        output = None
    problems = Problems()
    with problems.collected():
        typed = model_options(
            model, revision, dtype, device, device_map, quantize, offline, trust_remote_code, batch_tokens
        )
    with problems.collected():
        if output is not None:
            check_apart(output, read_by(memory, inputs, model=model, config=config))
    artifact = None
    with problems.collected():
        artifact = open_memory(memory, iteration)
    checked = check_inputs(artifact.header, inputs, problems) if artifact is not None else None
    problems.raise_any()
    assert artifact is not None
    header = artifact.header
    chosen = memory_options(header, typed, model)
    if output is not None:
        check_apart(output, read_by(model=chosen.model))
    spec = open_its_model(header, chosen, quiet)
    check_tokens(header, spec, inputs, checked)
    count = None if checked is None else checked.count
    with nullcontext(sys.stdout) if output is None else writing(output) as out:
        rows = _Rows(out, len(artifact.iterations))
        with behind(rows.write) as written:
            for part in _predictions(artifact, spec, inputs, count, quiet, verbose):
                written(part)
    if output is not None:
        note(f"wrote {output} ({rows.count} rows)", quiet)


class _Rows:
    """Writes predictions as JSON lines, in blocks that a pipe takes whole or not at all: an interrupt tears none."""

    def __init__(self, out: TextIO, iterations: int) -> None:
        self.out, self.iterations, self.count = out, iterations, 0

    def write(self, predictions: list[Prediction]) -> None:
        block, size = "", 0
        for prediction in predictions:
            row = output_row(self.count // self.iterations, prediction, several=self.iterations > 1)
            line = json_line(row)
            length = len(line.encode(errors="backslashreplace"))
            if size + length > PIPE_BUF:
                self._pass_on(block)
                block, size = "", 0
            block, size = block + line, size + length
            self.count += 1
        self._pass_on(block)

    def _pass_on(self, block: str) -> None:
        # The stream's own buffer is larger than a block, so that a flush is one system call.
        self.out.write(block)
        self.out.flush()


def _predictions(
    artifact: Artifact, spec: ModelSpec, inputs: str, count: int | None, quiet: bool, verbose: bool
) -> Iterator[list[Prediction]]:
    from deepthink_cli.cli.recall import load_both
    from deepthink_cli.data.examples import read_queries
    from deepthink_cli.prediction import CHUNK, predict_chunks

    metadata = artifact.header.metadata
    model, memories = load_both(artifact, spec, quiet, verbose)
    queries = read_queries(inputs, metadata.template, metadata.labels)
    # At a terminal every line is answered at once; otherwise inputs go through the model together.
    chunk = 1 if inputs == "-" and sys.stdin.isatty() else CHUNK
    with progress(quiet or sys.stdout.isatty()) as shown:
        task = shown.add_task("predicting", total=count)
        for part in predict_chunks(model, memories, queries, chunk):
            yield part
            shown.advance(task, len(part) // len(memories))
