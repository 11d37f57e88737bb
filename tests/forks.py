"""Command lines in copies of one process that has imported everything: to start one, and to kill it, takes milliseconds.

Run as a script this is that process. Where the system allows it has a small disk that only it sees, and that
may be filled; a second one in it, `sealed`, can only be read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

DISK = 32 * 2**20  # bytes
# A process that forks may have no other; and who compares bytes needs one, for more add in another order.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_MOUNT = (
    f'mount -t tmpfs -o size={DISK} tmpfs "$1" && mkdir "$1/sealed" && mount -t tmpfs -o ro tmpfs "$1/sealed" '
    '&& shift && exec "$@"'
)


@dataclass
class Child:
    """A command line that runs in a copy; what it says goes to the file `said`."""

    forks: Forks
    number: int
    said: Path
    started: float = field(default_factory=time.perf_counter)

    def kill(self) -> None:
        """End it as a power cut would, if it still runs."""
        os.kill(self.number, signal.SIGKILL)  # nobody else has its number until it is waited for
        self.wait()

    def kill_after(self, seconds: float) -> None:
        """Kill it so long after its start."""
        time.sleep(max(0.0, self.started + seconds - time.perf_counter()))
        self.kill()

    def wait(self) -> int:
        """Its exit code; less than 0 where a signal ended it."""
        return self.forks.ask(wait=self.number)

    def until(self, true: Callable[[], bool]) -> bool:
        """Wait until something is true, or until the process ends; returns whether it is true."""
        while not (found := true()) and not self._ended():
            time.sleep(0.0002)
        return found

    def _ended(self) -> bool:
        return Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


class Forks:
    """The process that is copied; `disk` is the path of its small disk, None where there is none."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        disk = folder / "disk"
        disk.mkdir()
        private = _private(disk)
        self.disk = disk if private else None
        self.process = subprocess.Popen(
            [*private, sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=ONE_THREAD,
        )  # fmt: skip

    def seen(self, path: Path) -> Path:
        """How others find a path on the small disk."""
        return Path(f"/proc/{self.process.pid}/root{path}")

    def warm(self, arguments: Iterable[str]) -> None:
        """Run a command line in the process itself, so that its copies have imported what it needs."""
        assert self.ask(here=list(arguments)) == 0

    def start(self, arguments: Iterable[str], largest: int | None = None) -> Child:
        """Start a command line in a copy; no file that it writes may be larger than `largest` bytes."""
        self.count += 1
        said = self.folder / f"said-{self.count}"
        return Child(self, self.ask(arguments=list(arguments), said=str(said), largest=largest), said)

    def run(self, arguments: Iterable[str], largest: int | None = None) -> tuple[int, str]:
        """Run a command line to its end: its exit code and what it said."""
        child = self.start(arguments, largest)
        return child.wait(), child.said.read_text(encoding="utf-8")

    def ask(self, **asked: object) -> int:
        """Hand the process a request; returns its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End the process, and with it its disk."""
        self.process.kill()
        self.process.wait()


def leave(disk: Path, free: int | None) -> None:
    """Fill a disk until `free` bytes are left on it; None leaves all."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    if free is not None:
        found = os.statvfs(disk)
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free)


def _private(disk: Path) -> list[str]:
    """The words that start a program with a disk of its own; none where the system does not let us."""
    for namespace in ("-m", "-rm"):
        words = ["unshare", namespace, "sh", "-c", _MOUNT, "sh", str(disk)]
        try:
            if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
                return words
        except FileNotFoundError:
            return []
    return []


def _serve() -> None:
    """Answer requests, one a line: the exit code of words run here; the number of a copy that runs them; its end."""
    import resource

    from deepthink_cli.cli.main import run

    for line in sys.stdin:
        asked = json.loads(line)
        if "here" in asked:
            answer = run(asked["here"])
        elif "wait" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        elif not (answer := os.fork()):
            said = os.open(asked["said"], os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(said, 1)
            os.dup2(said, 2)
            if asked["largest"] is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (asked["largest"], asked["largest"]))
            os._exit(run(asked["arguments"]))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
