"""The interface of executors, and the digest that shows whether two machines run the same code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from deepthink_cli.experiments.executors.messages import Event, Message, Opened

PACKAGE = Path(__file__).resolve().parent.parent.parent


@cache
def package_sha256() -> str:
    """SHA-256 of the names and bytes of the package's Python and YAML files."""
    digest = hashlib.sha256()
    files = (path for pattern in ("*.py", "*.yaml") for path in PACKAGE.rglob(pattern))
    for path in sorted(files, key=lambda path: path.relative_to(PACKAGE).as_posix()):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def this_version() -> str:
    """The version of the package, and the beginning of the digest of its files."""
    return f"{version('deepthink-cli')} ({package_sha256()[:12]})"


def module_path(variables: Mapping[str, str]) -> str:
    """PYTHONPATH of a worker: the package, and what the user names; an empty name would be the working directory."""
    named = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([str(PACKAGE.parent), *map(os.path.abspath, named)])


def other_version(opened: Opened) -> str | None:
    """Why a worker with another version of the package is refused; None if it has the same."""
    if opened.package == this_version():
        return None
    return (
        f"{opened.host} has deepthink {opened.package}, this machine {this_version()}; install the same version on all"
    )


Deliver = Callable[[Event], None]  # called from any thread; `Died` is the last event of a worker


class Worker(Protocol):
    """A worker that has been started, and does one message at a time."""

    def send(self, message: Message) -> None:
        """Ask the worker for something; its events are delivered, the last of them `Opened`, `Finished` or `Failed`."""

    def stop(self) -> None:
        """End the worker at once, whatever it is doing."""

    def suspended(self) -> int | None:
        """The process id of a worker that a signal has stopped (SIGSTOP): alive, and doing nothing; None otherwise."""


class Executor(Protocol):
    """Starts workers, on this machine or others. A new one is one class with these members.

    Whoever makes an executor closes it.
    """

    workers: int

    def start(self, number: int, deliver: Deliver) -> Worker:
        """Start worker `number`, from 0, or its successor if it has died; raises DeepThinkError if that fails."""

    def settle(self) -> None:
        """Free what is held for workers that no unit is left for; called when all others have been started."""

    def close(self) -> None:
        """Free what the executor holds, once all workers have been stopped."""
