"""This process: standard streams that were closed before it started, and Ctrl-C, which ends it within a second.

All writes are crash-safe.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from deepthink_cli.errors import ExitCode


def open_closed_streams() -> None:
    """Put something in the place of closed standard streams, which Python represents as None.

    Standard output becomes a pipe that nobody reads: writing data to it is an error. Messages are discarded, and
    standard input is empty. Without this the next file that is opened would get the descriptor of a stream.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
        if descriptor == 1:
            reader, writer = os.pipe()
            os.dup2(writer, 1)
            os.close(reader)
            os.close(writer)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


INTERRUPTED = "deepthink: interrupted; all files are intact"
_GRACE = 0.5  # seconds before the process is forced to end
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # progress bars hide it


def leave_at_ctrl_c() -> None:
    """End the process immediately at Ctrl-C until `end_at_ctrl_c` is called: nothing has been written yet."""

    def leave(*_: object) -> None:
        os.write(2, f"{INTERRUPTED}\n".encode())
        os._exit(ExitCode.INTERRUPTED)

    _handle(leave)


def end_at_ctrl_c() -> None:
    """End the process soon after Ctrl-C, also if a library catches the exception or native code delays it."""
    sys.unraisablehook = _unraisable
    _handle(signal.default_int_handler)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The signal itself writes to this pipe; a Python handler runs only after the main thread returns from native code.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    Thread(target=_wait_and_end, args=(reader,), daemon=True).start()


@contextmanager
def raising_ctrl_c() -> Iterator[None]:
    """Inside the block, Ctrl-C raises KeyboardInterrupt and does not end the process, as for the answers of a chat."""
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)


def _handle(handler: Callable[..., object]) -> None:
    # A process started with Ctrl-C ignored, as a shell starts background jobs, keeps ignoring it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def _unraisable(unraisable: Any) -> None:
    """Print nothing about an interrupt that arrived in a destructor, where it cannot be raised."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _wait_and_end(reader: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(_GRACE)
    show_cursor = _SHOW_CURSOR if os.isatty(2) else ""
    os.write(2, f"{show_cursor}{INTERRUPTED}\n".encode())
    os._exit(ExitCode.INTERRUPTED)
