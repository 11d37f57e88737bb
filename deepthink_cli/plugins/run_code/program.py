"""The judge of answers that are programs: each answer and the tests of its row run in two processes, each confined.

The tests' process calls the answer's process over a channel and compares the results itself, so that nothing that the
answer does in its own process decides the verdict. `docs/tasks.md` lists the limits of each way of confinement.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from subprocess import DEVNULL, TimeoutExpired
from typing import Any, Literal

from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Warn
from deepthink_cli.io.processes import Process, python, start
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.plugins.run_code.judging import RIGHT
from deepthink_cli.tasks.format import Free, found
from deepthink_cli.tasks.judges import Judge

MEMORY = 1 << 30  # bytes of address space
FILE = 1 << 20  # bytes of a file that is written
FOLDER = 1 << 26  # bytes of all files
_INSIDE = "/tmp/empty"  # the working folder in bubblewrap; Python itself may be in another one of /tmp
START = 5  # seconds in which the processes start; a busy machine needs some of them
_USERS = range(61184, 65520)  # ids that systemd gives to services while they run

Way = Literal["bubblewrap", "namespaces", "limits"]
HOLDS: dict[Way, str] = {
    "bubblewrap": "in bubblewrap, without network, without your files, and ended together with what they start",
    "namespaces": "without network and ended together with what they start, but WITH ACCESS TO FILES as user {user}; "
    "bubblewrap (bwrap) would hide these",
    "limits": "with limits of time, memory and file size ALONE, since neither bubblewrap nor namespaces are available "
    "here: they reach the network and, as user {user}, files and processes, can leave processes behind, and so can "
    "forge their verdicts; use a container or a virtual machine, or install bubblewrap (bwrap)",
}


@dataclass(frozen=True)
class Program:
    """A program in parts: the text before the answer, the answer, and the tests of its definitions."""

    before: str
    answer: str
    tests: str


@lru_cache
def way_to_confine() -> Way:
    """How programs are confined on this machine: the first way that a trial succeeds with."""
    # The import is of a file that is not read before this process becomes another user, who may not be able to.
    trial = Program("", "import colorsys\ndef answer():\n    return 1\n", "assert answer() == 1\n")
    ways: tuple[Way, ...] = ("bubblewrap", "namespaces") if sys.platform == "linux" else ()
    return next((way for way in ways if passes(trial, 10, way)), "limits")


def passes(program: Program, seconds: int, way: Way | None = None) -> bool:
    """Whether the tests of a program pass within some seconds of computing, in processes with limits.

    Each process has an empty temporary directory and none of the environment of this one. An early exit passes nothing.
    """
    way = way or way_to_confine()
    if way == "bubblewrap" and shutil.which("bwrap") is None:
        return False
    parts = {"answer": {"before": program.before, "answer": program.answer}}
    parts["tests"] = {**parts["answer"], "tests": program.tests}
    with ExitStack() as stack:
        ends = dict(zip(parts, socket.socketpair(), strict=True))
        processes = [stack.enter_context(_confined(name, parts[name], ends[name], way, seconds)) for name in parts]
        for end in ends.values():
            end.close()
        try:
            return processes[-1].wait(timeout=seconds + START) == RIGHT
        except TimeoutExpired:
            return False


@contextmanager
def _confined(part: str, program: dict[str, str], channel: socket.socket, way: Way, seconds: int) -> Iterator[Process]:
    """One of the two processes; it ends with the block, as does all that it has started."""
    # A user of its own has its own count of processes, which the kernel does not limit for root.
    user = secrets.choice(_USERS) if os.geteuid() == 0 and way != "limits" else 0
    with temporary_folder() as folder, channel:
        source = Path(__file__).with_name("judging.py").read_text(encoding="utf-8")
        words = python("-I", "-c", source, part, str(channel.fileno()), way)
        words += map(str, (user, seconds, MEMORY, FILE))
        where = str(folder)
        if way == "bubblewrap":
            words, where = [*_bubblewrap(), *words], _INSIDE
        elif user:
            os.chown(folder, user, user)
        with tempfile.TemporaryFile() as text:
            text.write(json.dumps(program).encode())
            text.seek(0)
            process = start(
                words,
                {"PATH": os.defpath, "HOME": where, "TMPDIR": where},
                cwd=folder,
                stdin=text,
                stdout=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
                pass_fds=[channel.fileno()],
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _bubblewrap() -> list[str]:
    """The words that run a command in bubblewrap: the system and Python read-only, a small empty /tmp, and no more."""
    prefixes = {os.path.realpath(each) for each in (sys.base_prefix, sys.prefix, os.path.dirname(sys.executable))}
    seen = ["/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store"]
    seen += [f"/etc/{name}" for name in ("ld.so.cache", "alternatives", "localtime")]
    words = ["bwrap", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if os.geteuid() == 0:  # the process then changes to another user, and cannot change back
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    else:
        words += ["--unshare-all"]
    words += ["--size", str(FOLDER), "--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--dir", _INSIDE]
    paths = [*seen, *sorted({*prefixes, sys.prefix, sys.base_prefix})]
    for parent in sorted({str(parent) for path in paths for parent in Path(path).parents} - {"/"}):
        words += ["--dir", parent]  # searchable by other users; a folder that a mount makes is not
    for path in paths:
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*words, "--chdir", _INSIDE]


PASSED, FAILED = "passes its tests", "fails its tests"
_COLUMN = r"\{(\w+)\}"


class ProgramJudge(Judge):
    """The tests of a program, run in confined processes."""

    summary = "the answer is a program that passes the tests of its row"
    source = "https://arxiv.org/abs/2108.07732"
    runs_code = True

    def answers(self, free: Free, gold: str, text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
        """That tests are passed, and whether they are; raises InputError for a column that the row does not have."""
        return PASSED, PASSED if passes(program_of(free, text, fields), free.seconds) else FAILED

    def confined(self) -> Note | Warn:
        """What holds on this machine; a warning unless bubblewrap confines programs."""
        way = way_to_confine()
        root = way == "namespaces" and os.geteuid() == 0
        holds = HOLDS[way].format(user="unknown" if root else os.geteuid())
        return (Note if way == "bubblewrap" else Warn)(f"programs are run {holds}")

    def check_may_run(self) -> None:
        """Raise InputError on systems without process limits, and for root if these are all."""
        if os.name != "posix":
            raise InputError("--run-code: this system has no limits for processes; use Linux or macOS")
        if os.geteuid() == 0 and way_to_confine() == "limits":
            raise InputError(
                f"--run-code: programs would run as root, {HOLDS['limits'].format(user='root')}; or run as another user"
            )


PROGRAM = ProgramJudge()


def program_of(free: Free, text: str, fields: Mapping[str, Any]) -> Program:
    """The program that tests a generated answer: the answer with columns of its row.

    Items of a list column are lines. Raises InputError for a column that the row does not have.
    """
    assert free.program is not None
    answer = text if free.extract is None else found(free.extract, text) or text
    values = {
        name: "\n".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in fields.items()
    }

    def filled(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise InputError(f"free: program: the row has no column {match[1]!r}; it has {', '.join(fields)}")
        return values[match[1]]

    before, _, tests = free.program.partition("{answer}")
    return Program(re.sub(_COLUMN, filled, before), answer, re.sub(_COLUMN, filled, tests))
