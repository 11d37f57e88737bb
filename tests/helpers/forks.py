"""Copies of one process that has imported everything: to start a command line, and to kill it, takes milliseconds.

Run as a script this is that process. Where the system allows it has a small disk that only it sees, and that
may be filled; a second one in it, `sealed`, can only be read. It has imported the large libraries, and nothing of
the package: so its copies run programs as new processes do. One of its copies runs both stages, and is copied in turn.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DISK = 32 * 2**20  # bytes
# A process that forks may have no other; and who compares bytes needs one, for more add in another order.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_MOUNT = (
    f'mount -t tmpfs -o size={DISK} tmpfs "$1" && mkdir "$1/sealed" && mount -t tmpfs -o ro tmpfs "$1/sealed" '
    '&& shift && exec "$@"'
)


@dataclass
class Child:
    """A command line that runs in a copy; what it says goes to the file `said`, but for streams of the test's own."""

    forks: Forks
    number: int
    said: Path
    started: float = field(default_factory=time.perf_counter)
    code: int | None = None  # once it has ended; less than 0 where a signal ended it
    peak: int = 0  # the most memory that it held, in the system's units (KiB on Linux)

    def kill(self) -> None:
        """End it as a power cut would, if it still runs."""
        if self.code is None:
            os.kill(self.number, signal.SIGKILL)  # nobody else has its number until it is waited for
            self.wait()

    def kill_after(self, seconds: float) -> None:
        """Kill it so long after its start."""
        time.sleep(max(0.0, self.started + seconds - time.perf_counter()))
        self.kill()

    def interrupt(self) -> None:
        """Send it what Ctrl-C sends."""
        os.kill(self.number, signal.SIGINT)

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code; raises TimeoutError where it does not end within these seconds."""
        deadline = time.perf_counter() + seconds if seconds is not None else None
        while deadline is not None and self.runs():
            if time.perf_counter() > deadline:
                raise TimeoutError(f"process {self.number} still runs after {seconds} s")
            time.sleep(0.001)
        self.code, self.peak = self.forks.ask(wait=self.number)
        return self.code

    def until(self, true: Callable[[], bool]) -> bool:
        """Wait until something is true, or until the process ends; returns whether it is true."""
        while not (found := true()) and self.runs():
            time.sleep(0.0002)
        return found

    def runs(self) -> bool:
        """Whether it has not ended."""
        return Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Forks:
    """A process that is copied; `disk` is the path of its small disk, None where there is none.

    The hub's library keeps its files in the folder `hub`, and no variable of the caller's changes what it does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.hub, disk = folder / "hub", folder / "disk"
        disk.mkdir()
        private = _private(disk)
        self.disk = disk if private else None
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Pipes, so that the streams of a copy are buffered as they are between two programs.
        self.process = subprocess.Popen(
            [*private, sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={**_without(ONE_THREAD, "HF_", "TRANSFORMERS_", "PYTHONUNBUFFERED"), "HF_HOME": str(folder)},
        )
        theirs.close()
        self.number = self.process.pid

    def copy(self, **variables: str) -> Forks:
        """A copy that is copied itself, on the same disk, with further variables of the environment."""
        made = copy(self)
        made.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            made.number = self.ask([theirs.fileno()], serve=variables)
        return made

    def seen(self, path: Path) -> Path:
        """How others find a path on the small disk."""
        return Path(f"/proc/{self.number}/root{path}")

    def warm(self, arguments: Iterable[str]) -> None:
        """Run a command line in the process itself, so that its copies have imported what it needs."""
        assert self.ask(here=list(arguments)) == 0

    def start(
        self,
        arguments: Iterable[str],
        largest: int | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Child:
        """Start a command line in a copy; no file that it writes may be larger than `largest` bytes.

        Streams are file descriptors; without them it reads nothing, and what it says goes to the file `said`.
        """
        self.count += 1
        said = self.folder / f"said-{self.number}-{self.count}"
        with open(os.devnull, "rb") as nothing, said.open("wb") as file:
            streams = [nothing.fileno() if stdin is None else stdin]
            streams += [file.fileno() if stream is None else stream for stream in (stdout, stderr)]
            number = self.ask(streams, arguments=list(arguments), largest=largest)
        return Child(self, number, said)

    def run(self, arguments: Iterable[str], largest: int | None = None, **streams: int) -> tuple[int, str]:
        """Run a command line to its end: its exit code and what it said."""
        child = self.start(arguments, largest, **streams)
        return child.wait(), child.said.read_text(encoding="utf-8")

    def program(
        self, text: str, arguments: Iterable[str] = (), folder: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, in a folder, with further variables of the environment."""
        self.count += 1
        said = [self.folder / f"{stream}-{self.number}-{self.count}" for stream in ("stdout", "stderr")]
        with open(os.devnull, "rb") as nothing, said[0].open("wb") as out, said[1].open("wb") as err:
            streams = [nothing.fileno(), out.fileno(), err.fileno()]
            asked = {"arguments": list(arguments), "folder": str(folder or Path.cwd()), "variables": variables}
            number = self.ask(streams, program=text, **asked)
        code, _ = self.ask(wait=number)
        return subprocess.CompletedProcess([], code, *(path.read_text(encoding="utf-8") for path in said))

    def ask(self, streams: Iterable[int] = (), **asked: object) -> Any:
        """Hand the process a request; returns its answer."""
        socket.send_fds(self.link, [json.dumps(asked).encode()], list(streams))
        return json.loads(self.link.recv(2**10))

    def close(self) -> None:
        """End the process; with the first one ends its disk."""
        self.link.close()
        os.kill(self.number, signal.SIGKILL)
        if self.number == self.process.pid:
            self.process.communicate()


def _without(variables: Mapping[str, str], *starts: str) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(starts)}


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


def _import_libraries() -> None:
    """Import what programs import last, and what changes its process when it is imported."""
    import datasets
    import huggingface_hub
    import matplotlib
    import pandas
    import pyarrow.parquet
    import pydantic.dataclasses
    import rich.progress
    import scipy
    import torch
    import transformers
    import typer

    _ = (datasets, huggingface_hub, matplotlib, pandas, pyarrow.parquet, pydantic, rich.progress, scipy, torch, typer)
    _ = (transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM, transformers.pipeline)
    gc.freeze()


def _serve(link: socket.socket) -> None:
    """Answer requests: the exit code of words run here; the number of a copy that runs them; how a copy ended."""
    while True:
        message, streams, _, _ = socket.recv_fds(link, 2**16, 3)
        if not message:
            return
        asked, answer = json.loads(message), None
        if "here" in asked:
            from deepthink_cli.cli.main import run

            answer = run(asked["here"])
            gc.freeze()
        elif "wait" in asked:
            _, status, used = os.wait4(asked["wait"], 0)
            answer = [os.waitstatus_to_exitcode(status), used.ru_maxrss]
        elif not (answer := os.fork()):
            link.close()
            if "serve" in asked:
                link = socket.socket(fileno=streams[0])
                if asked["serve"]:
                    _set(asked["serve"])
                continue
            _become(streams, **asked)
        for stream in streams:
            os.close(stream)
        link.send(json.dumps(answer).encode())


def _become(streams: list[int], **asked: Any) -> None:
    """Be a program or a command line: its streams, its words, and Ctrl-C."""
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    # As Python makes them of the new descriptors: those of a terminal are others than those of a pipe.
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the suite runs in the background
    code = 0
    try:
        _run_program(**asked) if "program" in asked else _run_command(**asked)
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    # All that Python's own end does that can be seen; the rest of it would take a second in every copy.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_program(program: str, arguments: list[str], folder: str, variables: dict[str, str]) -> None:
    """Run the text of a program as a new process would, with its variables and in its folder."""
    os.chdir(folder)
    _set(variables)
    sys.argv = ["-c", *arguments]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


def _set(variables: dict[str, str]) -> None:
    """Set variables of the environment, as they are for a new process."""
    os.environ.update(variables)
    sys.path[:0] = variables.get("PYTHONPATH", "").split(os.pathsep)


def _run_command(arguments: list[str], largest: int | None) -> None:
    """Run a command line; no file that it writes may be larger than `largest` bytes."""
    import resource

    from deepthink_cli.__main__ import main

    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    sys.argv = ["deepthink", *arguments]
    main()


if __name__ == "__main__":
    _import_libraries()
    _serve(socket.socket(fileno=int(sys.argv[1])))
