"""Where else work is done than on this machine: clusters, whose workers are started here, and queues of jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.events import Tell
from deepthink_cli.registry import Registry, loaded

if TYPE_CHECKING:
    from deepthink_cli.experiments.executors.base import Executor


@dataclass(frozen=True)
class Cluster:
    """Machines on which workers are started, asked for by `--workers [N@]NAME[:ADDRESS]`.

    `start`, or where it is found (`module:function`), makes an executor of the address (None: the cluster's own
    default), the number of workers (None: as many as there is room for), the device of the model's options, and the
    folder of what is kept between runs. It raises InputError for an address that cannot be one and what the cluster
    cannot run, and DeepThinkError if no cluster answers.
    """

    start: Callable[[str | None, int | None, str, Path], Executor] | str
    summary: str
    source: str

    def executor(self, address: str | None, workers: int | None, device: str, cache: Path) -> Executor:
        """An executor, which the caller closes."""
        return loaded(self.start)(address, workers, device, cache)


@dataclass(frozen=True)
class Queue:
    """A queue of jobs, asked for by `--workers N@NAME`; each does one of N shards of a run with a command of its own.

    `submit`, or where it is found, gets the number of shards, the folder of the run, the words of the command line and
    a function to tell notes; it returns the line that is printed. It raises InputError for what the queue cannot take.
    """

    submit: Callable[[int, Path, tuple[str, ...], Tell], str] | str
    summary: str
    source: str


def _check(name: str, found: Any) -> Cluster | Queue:
    if not isinstance(found, Cluster | Queue):
        raise TypeError(f"a {type(found).__name__}, neither a Cluster nor a Queue")
    return found


EXECUTORS: Registry[Cluster | Queue] = Registry("executors", {}, _check)
