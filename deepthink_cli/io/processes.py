"""The only place that starts processes: programs, and copies of this process that try untrusted work.

No program imports modules from the working directory. With `-m` and `-c`, Python searches it before its own modules, so
that a `queue.py` among somebody's data would run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

Process = subprocess.Popen[bytes]
SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # for the processes that libraries start, too


def python(*words: str) -> list[str]:
    """The words that run this Python with some arguments."""
    return [sys.executable, "-P", *words]


def start(words: Sequence[str], variables: Mapping[str, str] = os.environ, **more: Any) -> Process:
    """Start a process with these variables of the environment; `more` are arguments of Popen."""
    return subprocess.Popen(words, env={**variables, **SAFE_PATH}, **more)


SECONDS = 10
MEMORY = 2**30  # bytes
_TOO_LARGE = 9  # the exit status of a copy that has no more memory
_PAUSE = 0.002  # seconds between two looks at the copy


def exceeds(work: Callable[[], object], seconds: int = SECONDS) -> str | None:
    """The limit that some work exceeds, in words; None if it ends in any way, or if a process cannot be copied here.

    The work must start no threads and wait for none: a copy has one thread. Memory is limited on Linux only.
    """
    if not hasattr(os, "fork"):
        return None
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)  # Python warns that other threads' locks stay locked
        number = os.fork()
    if not number:
        _try(work, seconds)
    deadline, ended, status = time.monotonic() + seconds, 0, 0
    try:
        while not ended and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            ended, status = os.waitpid(number, os.WNOHANG)
    finally:
        if not ended:
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
    if not ended:
        return f"{seconds} seconds"
    return f"{MEMORY / 2**30:g} GiB of memory" if status else None


def _try(work: Callable[[], object], seconds: int) -> None:
    """Do the work with limits, and end this process."""
    import resource  # which only POSIX systems have

    status = 0
    try:
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # if this process outlives its parent
        with suppress(OSError):
            held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
        work()
    except MemoryError:
        status = _TOO_LARGE
    finally:  # any other error is raised again where the work is done
        os._exit(status)
