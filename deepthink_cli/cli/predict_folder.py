"""`deepthink predict --ray`: label a folder of Parquet files on a Ray cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from deepthink_cli.cli.console import note
from deepthink_cli.cli.executor_options import number_of
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.show import Show
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.workflows.label_options import ErrorOptions


def predict_folder(
    address: str | None,
    workers: str | None,
    memory: Path,
    inputs: str,
    output: Path | None,
    refused: dict[str, Any],
    errors: ErrorOptions | None,
    common: CommonArguments,
    **values: Any,
) -> None:
    """Label the folder; raises InputError for options that only apply to one file (`refused`, by their names)."""
    from deepthink_cli.workflows.label_folder import FolderLabels, label_folder

    if address is None:
        raise InputError(f"--workers {workers}: only with --ray here; add it")
    assert errors is not None
    for name, value in refused.items():
        if value:
            raise InputError(f"--{name}: not with --ray, which labels the files of a folder; omit one of the two")
    if output is None or not os.path.isdir(inputs):
        raise InputError("--ray: labels a folder of Parquet files into another; give predict MEMORY FOLDER -o FOLDER")
    if output.resolve() == Path(inputs).resolve():
        raise InputError(f"-o {output}: the folder of the inputs; name another one")
    named = {"memory": memory, "inputs": inputs, "output": output}
    paths: dict[str, Any] = {name: os.path.abspath(str(path)) for name, path in named.items()}
    with Show(common) as tell:
        job = FolderLabels(**paths, **values, skip=errors.skip)
        counts = label_folder(job, address, number_of("workers", workers), tell)
    note(f"wrote {counts.files} files into {output} ({counts.rows:,} rows, {counts.kept} files kept)", common.quiet)
    if counts.errors > (errors.allow_errors or 0):
        raise DeepThinkError(f"{counts.errors} rows could not be labelled; their errors are in {output}")
