"""A SLURM array over the shards of a run: a script for sbatch."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell
from deepthink_cli.experiments.executors.base import Queue
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.processes import python

WORKERS = "--workers"  # the option that asks for the script; a shard does not have it


def write(shards: int, out: Path, arguments: Sequence[str], tell: Tell) -> str:
    """Write `OUT.sbatch` beside the run's folder, for the command line of these arguments; the command that submits it.

    Raises InputError for a folder whose name would end a line of the script, and if the script cannot be written.
    """
    if out.name == "":
        raise InputError(f"-o {out}: name a folder, beside which the script is written")
    path = out.absolute().with_name(f"{out.name}.sbatch")
    if re.search(r"[\n\r]", str(path)):
        raise InputError(f"-o {path}: a line break in it would end a line of the script; name another folder")
    logs = str(path.with_name(f"{out.name}-%A-%a.log"))
    quote = '"' if re.search(r"\s", logs) else ""  # as sbatch reads a path with spaces
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=deepthink-{re.sub(r'[^A-Za-z0-9_.-]', '_', out.name)}",
        f"#SBATCH --array=1-{shards}",
        f"#SBATCH --output={quote}{logs}{quote}",
        "set -euo pipefail",
        f"cd {shlex.quote(os.getcwd())}",
        f"exec {shlex.join(python('-m', 'deepthink_cli', *_of_shard(arguments)))} "
        f'--shard "${{SLURM_ARRAY_TASK_ID}}/{shards}"',
    ]
    with writing(path, "slurm") as file:
        file.write("\n".join(lines) + "\n")
    tell(Note(f"wrote {path}: {shards} shards"))
    return shlex.join(["sbatch", str(path)])


def _of_shard(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments without the option that wrote the script."""
    rest = iter(arguments)
    for word in rest:
        if word == WORKERS:
            next(rest, None)
        elif word.partition("=")[0] != WORKERS:
            yield word


SLURM = Queue(write, "a script for an array of SLURM over the shards of a run", "https://slurm.schedmd.com")
