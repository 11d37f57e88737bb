"""`deepthink vectors`: extract vectors from labelled rows, to be added to prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, write_json
from deepthink_cli.cli.data_options import (
    LABELLED_ROWS,
    DataDir,
    PromptArguments,
    ProtocolName,
    RowArguments,
    TaskName,
    task_words,
)
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments, tell_of_toy
from deepthink_cli.cli.pools import pool_rows
from deepthink_cli.cli.values import read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.text import size
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag
from deepthink_cli.plugins.vectors.options import VectorOptions

Rows = Annotated[
    str | None,
    typer.Argument(
        metavar="ROWS",
        help=f"Labelled rows: {LABELLED_ROWS}; - for stdin. Optional with --task, which has training rows.",
    ),
]
Output = Annotated[Path, Flag(OUTPUT, "Output file of the vectors.", "FILE", short="-o", variable=False)]


@about(
    "vectors rows.jsonl -m gpt2 --episodes 200 -o vectors.safetensors",
    first="output model episodes shots extraction_alpha alpha seed template label_field labels task",
)
@grouped
def vectors(
    rows: Rows = None,
    output: Output = Path("vectors.safetensors"),
    *,
    model: Annotated[Given[ModelOptions], Without("batch_tokens"), NEW_MODEL],
    extraction: Given[VectorOptions],
    reading: RowArguments,
    prompt: PromptArguments,
    task: TaskName = None,
    protocol: ProtocolName = "official",
    data_dir: DataDir = None,
    common: CommonArguments,
) -> None:
    """Extract iterative vectors from labelled rows.

    predict and eval add them to a prompt. An episode is a few of the rows with a query, and the query alone; the
    vectors are the mean of what differs.
    """
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.tasks.sources import source_of

    problems = Problems()
    paths: dict[str, Any] = {"model": model.model, "template": prompt.template}
    paths |= {"labels": prompt.labels, "task": task, "data_dir": data_dir, "config": common.config}
    with problems.collected():
        check_apart(output, read_by(rows, **paths))
    model_options = problems.tried(model.checked)
    options = problems.tried(extraction.checked)
    with problems.collected():
        source = source_of(data_dir, model.offline)
    with problems.collected():
        row_file = reading.source(rows, prompt.labels, Show(common))
        if rows is None and task is None:
            raise InputError("ROWS: no labelled rows; give a file of them, or --task NAME")
    problems.raise_any()
    with Show(common, bar=not common.as_json) as tell:
        tell_of_toy(model, tell)
        pool = pool_rows(row_file, task, protocol, source, prompt, tell)
        from deepthink_cli.plugins.vectors.make import extract_and_save, plan_vectors

        plan = plan_vectors(pool, model_options, options, task, tell)
        file = extract_and_save(plan, output, tell)
    if common.as_json:
        write_json(file.summary())
    layers, labels = file.shape[0], len(file.metadata.labels)
    passes = f"{options.episodes} episodes, {2 * options.episodes} passes over {plan.tokens:,} tokens"
    read = f"{len(plan.prompt.places)} demonstrations, L = {len(plan.prompt.demonstrations.token_ids)} tokens"
    labelled = "LABELLED" if task is None else f"--task {task_words(task, source)}"
    for line in (
        f"{passes}, from {len(plan.pool.free):,} labelled rows of {plan.pool.name}",
        f"wrote {output} ({size(file.container.size)}: {layers} layers, {labels} labels; prompt of {read})",
        f"next: deepthink eval {output} {labelled} --alpha {options.alpha:g}",
    ):
        note(line, common.quiet)
