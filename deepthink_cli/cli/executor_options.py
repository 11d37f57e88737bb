"""Options of the place of work: this process, worker processes, shards, or other machines."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepthink_cli.cli.command import ARGUMENTS
from deepthink_cli.errors import InputError, Problem, Problems, option
from deepthink_cli.events import Tell
from deepthink_cli.experiments.executors.base import EXECUTORS, Cluster, Queue
from deepthink_cli.options import MACHINES, Flag, Options
from deepthink_cli.registry import loaded

if TYPE_CHECKING:
    from deepthink_cli.experiments.executors.base import Executor
    from deepthink_cli.experiments.folder import Shard

MOST = 10_000  # the most workers, or shards of a queue
_WORKERS = re.compile(
    r"(?P<alone>[1-9][0-9]{0,4})|(?:(?P<number>[1-9][0-9]{0,4})@)?(?P<name>[^@:]+)(?::(?P<address>.+))?"
)
_ELSEWHERE = f"; on other machines by {', '.join(EXECUTORS)}" if EXECUTORS else ""
Workers = Annotated[
    str | None,
    Flag(
        MACHINES,
        f"Worker processes, each with its share of the GPUs or of the cores{_ELSEWHERE}.",
        "N|[N@]NAME[:ADDRESS]",
        variable=False,
    ),
]


class ExecutorArguments(Options):
    """Options of the division of a run."""

    workers: Workers = None
    shard: Annotated[
        str | None,
        Flag(
            MACHINES, "Do part I of N, into FOLDER/shard-I-of-N; report FOLDER reads all parts.", "I/N", variable=False
        ),
    ] = None


@dataclass(frozen=True)
class Machines:
    """Who does the work: worker processes here, or a cluster or a queue (`found`), with their number and its address.

    This process does it without any of them. Of a run, it may be one shard alone.
    """

    number: int | None = None
    found: Cluster | Queue | None = None
    address: str | None = None
    shard: Shard | None = None

    @classmethod
    def checked(cls, divided: ExecutorArguments, demonstrations: str | None = None) -> Machines:
        """The machines that options name; raises InputError for each wrong value, and for options that exclude another.

        `demonstrations` names a file of them, which every worker must be able to read.
        """
        from deepthink_cli.experiments.folder import Shard

        problems = Problems()
        found = problems.tried(place_of, divided.workers, queues=True) or cls()
        shard = None if divided.shard is None else problems.tried(Shard.parsed, divided.shard)
        if isinstance(found.found, Queue) and divided.shard is not None:
            reason = f"names the shards itself; omit {option('shard')} {divided.shard}"
            problems.add(Problem.of("workers", divided.workers, reason))
        if demonstrations == "-" and divided.workers is not None:
            problems.add(Problem.of("demos", "-", "workers cannot read standard input; name a file"))
        problems.raise_any()
        return replace(found, shard=shard)

    def folder(self, out: Path) -> Path:
        """The folder of the rows: the folder of the shard, or of the first shard of a queue.

        Raises InputError if `out` holds a run, or shards of another number.
        """
        from deepthink_cli.experiments.folder import Shard

        if isinstance(self.found, Queue):
            return Shard(1, self.number or 0).folder(out)
        return out if self.shard is None else self.shard.folder(out)

    def executor(self, device: str) -> AbstractContextManager[Executor | None]:
        """The executor that the options name, closed in the end; None for this process and for a queue.

        `device` is the model options' device. Raises InputError for more workers than GPUs, and DeepThinkError for a
        cluster that cannot be reached.
        """
        is_here = self.number is None and self.found is None
        return nullcontext() if is_here or isinstance(self.found, Queue) else started(self, device)

    def queued(self, out: Path, tell: Tell) -> bool:
        """Whether a queue was requested; if so, give it the run and print its answer."""
        if not isinstance(self.found, Queue):
            return False
        typer.echo(loaded(self.found.submit)(self.number or 0, out, ARGUMENTS.get(), tell))
        return True


def place_of(text: str | None, queues: bool = False) -> Machines | None:
    """The workers in the text of `--workers`, if any; raises InputError for another text.

    Only a command that has shards takes a queue.
    """
    if text is None:
        return None
    named, parts = Problem.of("workers", text), _WORKERS.fullmatch(text)
    known = [name for name, each in EXECUTORS.items() if queues or isinstance(each, Cluster)]
    number = int(parts["alone"] or parts["number"] or 0) if parts else 0
    if parts is None or number > MOST or not (parts["alone"] or parts["name"] in known):
        elsewhere = f", also N@NAME: {', '.join(known)}" if known else ""
        raise InputError(named.because(f"a whole number from 1 to {MOST}{elsewhere}"))
    found = None if parts["alone"] else EXECUTORS[parts["name"]]
    if isinstance(found, Queue) and (not number or parts["address"]):
        raise InputError(named.because(f"give the number of its shards alone, as in 4@{parts['name']}"))
    return Machines(number or None, found, parts["address"])


def started(machines: Machines, device: str) -> AbstractContextManager[Executor]:
    """An executor on a cluster, or of processes on this machine; closed in the end."""
    if isinstance(machines.found, Cluster):
        return closing(loaded(machines.found.start)(machines.address, machines.number, device))
    from deepthink_cli.experiments.executors.local import LocalExecutor, visible_gpus

    return closing(LocalExecutor(machines.number or 1, visible_gpus(device, machines.number or 1)))
