"""Options that say where work is done: in this process, in worker processes, in shards, or on other machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.command import ARGUMENTS
from deepthink_cli.cli.console import note
from deepthink_cli.cli.grouped import Given
from deepthink_cli.cli.names import flag
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.events import Event, Note
from deepthink_cli.experiments.executors.registry import EXECUTORS, Cluster, Queue
from deepthink_cli.options import MACHINES, Flag, Joined, Options, joined, own_options
from deepthink_cli.registry import loaded

if TYPE_CHECKING:
    from deepthink_cli.experiments.executors.base import Executor
    from deepthink_cli.experiments.shards import Shard

Workers = Annotated[
    str | None,
    Flag(
        MACHINES,
        "Worker processes, each with its share of the GPUs or of the cores; on a cluster by default one for each GPU, "
        "or core.",
        "N",
        variable=False,
    ),
]


class ExecutorArguments(Options):
    """How a run is divided."""

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


def _options(kinds: type | tuple[type, ...]) -> dict[str, type[Options]]:
    return {name: each.options for name, each in EXECUTORS.items() if isinstance(each, kinds)}


if TYPE_CHECKING:
    ClusterOptions = Joined
    ElsewhereOptions = Joined
else:
    ClusterOptions = joined("ClusterOptions", _options(Cluster))
    ElsewhereOptions = joined("ElsewhereOptions", _options((Cluster, Queue)))


@dataclass(frozen=True)
class Place:
    """A cluster or a queue, with its options, and the one that names it in messages."""

    found: Cluster | Queue
    options: Options
    named: tuple[str, Any]


@dataclass(frozen=True)
class Machines:
    """Where a run is done: here, in a shard, in `workers` on this machine or on a cluster, or by a queue."""

    workers: int | None = None
    shard: Shard | None = None
    place: Place | None = None

    @classmethod
    def checked(
        cls, divided: ExecutorArguments, elsewhere: Given[ElsewhereOptions], demonstrations: str | None = None
    ) -> Machines:
        """The machines that options name; raises InputError for each wrong value, and for options that exclude another.

        `demonstrations` names a file of them, which every worker must be able to read.
        """
        from deepthink_cli.experiments.shards import Shard

        problems, place = Problems(), None
        with problems.collected():
            workers = workers_of(divided.workers)
        with problems.collected():
            place = place_of(elsewhere)
        with problems.collected():
            shard = None if divided.shard is None else Shard.parsed(divided.shard)
        with problems.collected():
            if place is not None and isinstance(place.found, Queue) and divided.shard is not None:
                raise InputError.of(*place.named, f"names the shards itself; omit {flag('shard', divided.shard)}")
            if demonstrations == "-" and (divided.workers or place is not None):
                raise InputError.of("demos", "-", "workers cannot read standard input; name a file")
        problems.raise_any()
        return cls(workers, shard, place)

    def folder(self, out: Path) -> Path:
        """The folder that rows are written into: that of the shard, or of the first shard of a queue.

        Raises InputError if `out` holds a run, or shards of another number.
        """
        from deepthink_cli.experiments.shards import Shard

        if self.shard is not None:
            return self.shard.folder(out)
        if self.place is not None and isinstance(self.place.found, Queue):
            return Shard(1, loaded(self.place.found.shards)(self.place.options)).folder(out)
        return out

    @contextmanager
    def executor(self, device: str, cache: Path) -> Iterator[Executor | None]:
        """The executor that the options name, closed in the end; None for this process and for a queue.

        Enter it before the run is planned: its processes start meanwhile. `device` is that of the model's options.
        Raises InputError for more workers than GPUs, and DeepThinkError for a cluster that cannot be reached.
        """
        if (self.place is None and self.workers is None) or (self.place and isinstance(self.place.found, Queue)):
            yield None
            return
        with started(self.place, self.workers, device, cache) as executor:
            yield executor

    def queued(self, out: Path, quiet: bool) -> bool:
        """Whether a queue was asked for; the run is then given to it, and what it answers is printed."""
        if self.place is None or not isinstance(self.place.found, Queue):
            return False

        def tell(event: Event) -> None:
            if isinstance(event, Note):
                note(event.text, quiet)

        line = loaded(self.place.found.submit)(self.place.options, out, ARGUMENTS.get(), tell)
        if line is not None:
            typer.echo(line)
        return True


def place_of(given: Given[Any]) -> Place | None:
    """The cluster or queue whose options were given; raises InputError for options of several, and for wrong ones."""
    asked = given.changed
    if not asked:
        return None
    names = {name: each.options for name, each in EXECUTORS.items()}
    name = next(name for name, options in names.items() if next(iter(asked)) in options.model_fields)
    found = EXECUTORS[name]
    return Place(found, own_options(found.options, asked, name, _as_typed(names)), next(iter(asked.items())))


def _as_typed(names: Mapping[str, type[Options]]) -> dict[str, type[Options]]:
    """The options of each place by the first of them, as it is typed."""
    return {flag(next(iter(options.model_fields))): options for options in names.values() if options.model_fields}


@contextmanager
def started(place: Place | None, workers: int | None, device: str, cache: Path) -> Iterator[Executor]:
    """An executor on a cluster, or of processes on this machine; closed in the end."""
    executor: Executor
    if place is not None:
        assert isinstance(place.found, Cluster)
        executor = place.found.executor(place.options, workers, device, cache)
    else:
        from deepthink_cli.experiments.executors.local import LocalExecutor, visible_gpus

        executor = LocalExecutor(workers or 1, visible_gpus(device), cache)
    try:
        yield executor
    finally:
        executor.close()


def named(place: Place | None, workers: str | None) -> tuple[str, Any]:
    """The option that names the workers, and its value."""
    return ("workers", workers) if place is None else place.named


def workers_of(value: str | None) -> int | None:
    """The number of workers; raises InputError, naming the option, for another text."""
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 10_000):
        raise InputError.of("workers", value, "a whole number from 1 to 10000")
    return int(value)
