"""`deepthink serve-config`: the command of a vLLM server with memories."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, write_json
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.options import METHOD, Flag

Files = Annotated[list[Path], typer.Argument(metavar="MEMORY", help="Memory files, all made by one model.")]
At = Annotated[str, Flag(METHOD, "Which kept iteration to serve: a number, or last.", "T")]


@about("serve-config tickets.safetensors reviews.safetensors")
@grouped
def serve_config(memories: Files, at: At = "last", *, common: Annotated[CommonArguments, Without("verbose")]) -> None:
    """Print the command of a vLLM server with memories.

    It answers OpenAI's requests after a memory. A request names a memory, by the name of its file, as its model. Other
    requests are answered by the model alone. The server checks the model, the memories and that they fit before it
    answers.
    """
    from deepthink_cli.plugins.vllm.settings import server_command

    command = server_command(memories, at)
    if common.as_json:
        write_json(
            {
                "command": command.words,
                "memories": [
                    {"name": each.name, "file": each.path, "cache_salt": each.salt} for each in command.memories
                ],
            }
        )
        return
    sys.stdout.write(f"{shlex.join(command.words)}\n")
    names = ", ".join(each.name for each in command.memories)
    note(f"requests name as their model: {names}", common.quiet)
