"""Options that say where a run is done: in this process, in worker processes, on a Ray cluster, or in shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.console import note
from deepthink_cli.cli.output_options import ARGUMENTS
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.options import Flag, Options

if TYPE_CHECKING:
    from deepthink_cli.experiments.executors.base import Executor
    from deepthink_cli.experiments.shards import Shard

MACHINES = "Machines"
Ray = Annotated[
    str | None,
    Flag(
        MACHINES,
        "Use a Ray cluster: HOST:PORT, auto for one on this machine, or no address to start one here (needs ray).",
        "[ADDRESS]",
        variable=False,
    ),
]

Workers = Annotated[
    str | None,
    Flag(
        MACHINES,
        "Worker processes on this machine, each with its share of the GPUs or of the cores; with --ray, on the "
        "cluster (default: one for each GPU, or core).",
        "N",
        variable=False,
    ),
]


class ExecutorArguments(Options):
    """Where a run is done."""

    workers: Workers = None
    shard: Annotated[
        str | None,
        Flag(
            MACHINES,
            "Do part I of N, into FOLDER/shard-I-of-N; report FOLDER reads all parts.",
            "I/N",
            variable=False,
        ),
    ] = None
    ray: Ray = None
    slurm: Annotated[
        str | None,
        Flag(
            MACHINES,
            "Run nothing: write a script for a SLURM array of N shards, and print how to submit it.",
            "N",
            variable=False,
        ),
    ] = None
    sbatch: Annotated[
        list[str] | None,
        Flag(
            MACHINES,
            "With --slurm: an option of sbatch, as in --sbatch=--gres=gpu:1. Repeatable.",
            "OPTION",
            variable=False,
        ),
    ] = None
    submit: Annotated[
        bool,
        Flag(
            MACHINES,
            "With --slurm: also submit the shards (needs submitit).",
            variable=False,
        ),
    ] = False

    def checked_shard(self, demonstrations: str | None = None) -> Shard | None:
        """The shard, if one is named; raises InputError for each wrong value, and for options that exclude another.

        `demonstrations` names a file of them, which every worker must be able to read.
        """
        from deepthink_cli.experiments.shards import Shard

        problems = Problems()
        with problems.collected():
            self._number("workers")
        with problems.collected():
            self._number("slurm")
        with problems.collected():
            shard = None if self.shard is None else Shard.parsed(self.shard)
        with problems.collected():
            if self.slurm is not None and self.shard is not None:
                raise InputError.of("slurm", self.slurm, f"names the shards itself; omit --shard {self.shard}")
            if self.slurm is None and (self.sbatch or self.submit):
                raise InputError(
                    f"{option('submit') if self.submit else option('sbatch')}: only with --slurm N; add it"
                )
            if demonstrations == "-" and (self.workers or self.ray or self.slurm):
                raise InputError.of("demos", "-", "workers cannot read standard input; name a file")
        problems.raise_any()
        return shard

    def folder(self, out: Path) -> Path:
        """The folder that rows are written into: that of the shard, or of the first shard that a script is for.

        Raises InputError if `out` holds a run, or shards of another number.
        """
        from deepthink_cli.experiments.shards import Shard

        if self.shard is not None:
            return Shard.parsed(self.shard).folder(out)
        shards = self._number("slurm")
        return out if shards is None else Shard(1, shards).folder(out)

    @contextmanager
    def executor(self, device: str, cache: Path) -> Iterator[Executor | None]:
        """The executor that the options name, closed in the end; None for this process and for a script.

        Enter it before the run is planned: its processes start meanwhile. `device` is that of the model's options.
        Raises InputError for more workers than GPUs, and DeepThinkError for a cluster that cannot be reached.
        """
        if self.slurm or (self.ray is None and self.workers is None):
            yield None
            return
        with started(self.ray, self._number("workers"), device, cache) as executor:
            yield executor

    def wrote_script(self, out: Path, quiet: bool) -> bool:
        """Whether a script for SLURM was asked for; it is then written, and submitted if that was asked for too."""
        shards = self._number("slurm")
        if shards is None:
            return False
        from deepthink_cli.plugins.cluster.slurm import submit, write_script

        script = write_script(out, ARGUMENTS.get(), shards, self.sbatch or ())
        note(f"wrote {script.path}: {shards} shards", quiet)
        if self.submit:
            note(f"submitted as {', '.join(submit(script))}; then: deepthink report {out}", quiet)
        else:
            typer.echo(script.command)
        return True

    def _number(self, name: str) -> int | None:
        return number_of(name, getattr(self, name))


@contextmanager
def started(address: str | None, workers: int | None, device: str, cache: Path) -> Iterator[Executor]:
    """An executor on the Ray cluster at an address, or of processes on this machine; closed in the end."""
    executor: Executor
    if address is not None:
        from deepthink_cli.plugins.cluster.ray_cluster import RayExecutor

        executor = RayExecutor(address, workers, device, cache)
    else:
        from deepthink_cli.experiments.executors.local import LocalExecutor, visible_gpus

        executor = LocalExecutor(workers or 1, visible_gpus(device), cache)
    try:
        yield executor
    finally:
        executor.close()


def named(address: str | None, workers: str | None) -> tuple[str, str | None]:
    """The option that names the workers, and its value."""
    return ("workers", workers) if address is None else ("ray", address)


def number_of(name: str, value: str | None) -> int | None:
    """The number of workers or shards; raises InputError, naming the option, for another text."""
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 10_000):
        raise InputError.of(name, value, "a whole number from 1 to 10000")
    return int(value)
