"""Run a Python program of unknown origin in a process with limits of time, memory, files, processes and network.

The limits hold off mistakes and accidents of generated code. They are no protection against code that is written to
break out: run it in a container or a virtual machine if it may be hostile.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from deepthink_cli.errors import InputError

MEMORY = 1 << 30  # bytes of address space
FILE = 1 << 20  # bytes of a file that is written
# Sets limits, which a process cannot raise again, and runs the program; the word shows that it came to its end.
_LAUNCHER = """
import builtins, ctypes, os, resource, sys
word, seconds, memory, size = sys.stdin.readline().strip(), *map(int, sys.argv[2:5])
source = open(sys.argv[1], encoding="utf-8").read()
if sys.platform == "linux":
    ctypes.CDLL(None).unshare(0x10000000 | 0x40000000)  # new user and network namespaces: no network
limits = {"CPU": seconds, "AS": memory, "FSIZE": size, "NOFILE": 32, "NPROC": 16, "CORE": 0}
for name, most in limits.items():
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
out = os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
exec(compile(source, "answer.py", "exec"), {"__name__": "__main__"})
os.write(out, word.encode())
os._exit(0)
"""


def ends_well(program: str, seconds: int) -> bool:
    """Whether a Python program comes to its end without an error within some seconds, in a process with limits.

    It runs in an empty temporary directory, without the environment of this process. An early exit is no end. Raises
    InputError on systems without limits of processes.
    """
    if os.name != "posix":
        raise InputError("--run-code: this system has no limits for processes; use Linux or macOS")
    word = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="deepthink-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "answer.py"
        path.write_text(program, encoding="utf-8", errors="replace")
        command = [sys.executable, "-I", "-c", _LAUNCHER, str(path), str(seconds), str(MEMORY), str(FILE)]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, "TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(f"{word}\n".encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError, PermissionError):  # also processes that the program has started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
    return out == word.encode()
