"""`deepthink predict` for a folder of Parquet files, which workers label into another folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from deepthink_cli.cli.console import Show, note
from deepthink_cli.cli.executor_options import named, number_of, started
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.prediction.options import ErrorOptions


def predict_folder(
    address: str | None,
    workers: str | None,
    memory: Path,
    inputs: str,
    output: Path | None,
    refused: dict[str, Any],
    errors: ErrorOptions,
    common: CommonArguments,
    **values: Any,
) -> None:
    """Label the folder; raises InputError for options that only apply to one file (`refused`, by their names)."""
    from deepthink_cli.experiments.label_folder import FolderLabels, label_folder
    from deepthink_cli.selection.store import default_folder

    given, value = named(address, workers)
    for name, other in refused.items():
        if other:
            reason = f"not with {option(given)}, which labels the files of a folder; omit one of the two"
            raise InputError.of(name, None, reason)
    number = number_of("workers", workers)
    if output is None:
        raise InputError.of(
            given, value, "labels a folder of Parquet files into another; give predict MEMORY FOLDER -o FOLDER"
        )
    if output.resolve() == Path(inputs).resolve():
        raise InputError.of("output", output, "the folder of the inputs; name another one")
    files = {"memory": memory, "inputs": inputs, "output": output}
    paths: dict[str, Any] = {name: os.path.abspath(str(path)) for name, path in files.items()}
    with Show(common) as tell:
        job = FolderLabels(**paths, **values, errors=errors)
        machine = started(address, number, values["options"].device, default_folder())
        counts = label_folder(job, machine, tell)
    note(f"wrote {counts.files} files into {output} ({counts.rows:,} rows, {counts.kept} files kept)", common.quiet)
    if counts.errors > (errors.allow_errors or 0):
        raise DeepThinkError(f"{counts.errors} rows could not be labelled; their errors are in {output}")
