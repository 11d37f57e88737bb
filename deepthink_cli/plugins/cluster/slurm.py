"""A SLURM array over the shards of a run: a script for sbatch, or jobs submitted with submitit."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Note, Tell
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.processes import SAFE_PATH, python, start
from deepthink_cli.plugins.cluster.registry import SlurmOptions

FLAGS, WITH_VALUE = ("--submit",), ("--slurm", "--sbatch")  # of `deepthink run`, which a shard does not have
_OPTION = re.compile(r"--?[A-Za-z][^\n\r]*")
_LINE_BREAK = re.compile(r"[\n\r]")


@dataclass(frozen=True)
class Script:
    """An sbatch script that was written; `words` is the command of a shard, but for its number."""

    path: Path
    words: tuple[str, ...]
    shards: int
    options: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that submits the script."""
        return shlex.join(["sbatch", str(self.path)])


def write_or_submit(options: SlurmOptions, out: Path, arguments: Sequence[str], tell: Tell) -> str | None:
    """Write the script, and submit its shards if the options say so; else returns the command that does."""
    assert options.slurm is not None
    script = write_script(out, arguments, options.slurm, options.sbatch or ())
    tell(Note(f"wrote {script.path}: {script.shards} shards"))
    if not options.submit:
        return script.command
    tell(Note(f"submitted as {', '.join(submit(script))}; then: deepthink report {out}"))
    return None


def write_script(out: Path, arguments: Sequence[str], shards: int, options: Sequence[str]) -> Script:
    """Write `OUT.sbatch` beside the run's folder, for the command line of these arguments.

    `options` are for sbatch. Raises InputError for one that is not an option, for a folder whose name would end a line
    of the script, and if the script cannot be written.
    """
    for option in options:
        if not _OPTION.fullmatch(option):
            raise InputError(f"--sbatch {option!a}: write an option of sbatch on one line, as in --sbatch=--gres=gpu:1")
    if out.name == "":
        raise InputError(f"-o {out}: name a folder, beside which the script is written")
    path = out.absolute().with_name(f"{out.name}.sbatch")
    if _LINE_BREAK.search(str(path)):
        raise InputError(f"-o {path}: a line break in it would end a line of the script; name another folder")
    words = tuple(python("-m", "deepthink_cli", *_of_shard(arguments)))
    logs = path.with_name(f"{out.name}-%A-%a.log")
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=deepthink-{re.sub(r'[^A-Za-z0-9_.-]', '_', out.name)}",
        f"#SBATCH --array=1-{shards}",
        f"#SBATCH --output={_quoted(str(logs))}",
        *(f"#SBATCH {option}" for option in options),
        "set -euo pipefail",
        f"cd {shlex.quote(os.getcwd())}",
        f'exec {shlex.join(words)} --shard "${{SLURM_ARRAY_TASK_ID}}/{shards}"',
    ]
    with writing(path, "slurm") as file:
        file.write("\n".join(lines) + "\n")
    return Script(path, words, shards, tuple(options))


def submit(script: Script) -> list[str]:
    """Submit the shards with submitit, to SLURM or, where there is none, as processes here; returns the jobs' numbers.

    Raises InputError if submitit is missing, and DeepThinkError if it refuses.
    """
    try:
        import submitit
    except ImportError as error:
        raise InputError(f"--submit: needs submitit; pip install submitit, or run: {script.command}") from error
    os.environ.update(SAFE_PATH)  # for submitit's own processes here; SLURM may not hand variables on
    folder = script.path.with_suffix(".submitit")
    executor = submitit.AutoExecutor(folder=folder, slurm_python=shlex.join(python()))
    parameters = dict(option.lstrip("-").partition("=")[::2] for option in script.options)
    try:
        if executor.cluster == "slurm":
            executor.update_parameters(slurm_additional_parameters=parameters)
        with executor.batch():
            jobs = [executor.submit(run_shard, [*script.words, "--shard", shard]) for shard in _shards(script.shards)]
    except Exception as error:  # what submitit raises depends on the site
        reason = " ".join(str(error).split())[:200]
        raise DeepThinkError(f"--submit: {type(error).__name__}: {reason}; or run: {script.command}") from error
    return [str(job.job_id) for job in jobs]


def run_shard(words: Sequence[str]) -> None:
    """Run the command of one shard; raises CalledProcessError if it fails."""
    with start(words) as process:
        code = process.wait()
    if code:
        raise CalledProcessError(code, list(words))


def _shards(number: int) -> Iterator[str]:
    return (f"{shard}/{number}" for shard in range(1, number + 1))


def _of_shard(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments without the options that wrote the script."""
    rest = iter(arguments)
    for word in rest:
        if word in WITH_VALUE:
            next(rest, None)
        elif word not in FLAGS and word.partition("=")[0] not in WITH_VALUE:
            yield word


def _quoted(path: str) -> str:
    """A path as sbatch reads it from a line of the script: quoted if it contains a space."""
    return f'"{path}"' if re.search(r"\s", path) else path
