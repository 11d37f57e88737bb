"""`deepthink compose`: several memories as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, write_json
from deepthink_cli.cli.grouped import grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.values import read_by
from deepthink_cli.io.text import size
from deepthink_cli.options import OUTPUT, Flag

Memories = Annotated[
    list[str],
    typer.Argument(
        metavar="MEMORY...", show_default=False, help="Memory files of the same model, template and labels."
    ),
]
Output = Annotated[
    Path,
    Flag(OUTPUT, "Output file of the composed memory.", "FILE", short="-o", variable=False),
]


@about("compose bugs.safetensors accounts.safetensors -o tickets.safetensors")
@grouped
def compose(memories: Memories, output: Output, *, common: CommonArguments) -> None:
    """Make one memory of several, each of which becomes a part.

    A part was read without the others. Their order changes no score but by rounding. The weights of the model are not
    read.
    """
    from deepthink_cli.outputs import check_apart
    from deepthink_cli.plugins.memories.compose import compose as compose_files

    for memory in memories:
        check_apart(output, read_by(memory, config=common.config))
    with Show(common, bar=False) as tell:
        header = compose_files(memories, output, tell)
    stored = header.metadata.demonstrations
    note(
        f"wrote {output} ({len(stored.texts)} demonstrations, {len(stored.token_ids)} tokens, {size(header.size)})",
        common.quiet,
    )
    if common.as_json:
        write_json({"file": header.path, "parts": header.metadata.parts, "sha256": header.metadata.sha256})
