"""This process: standard streams that were closed before it started, and the signals that end it within a second.

All writes are crash-safe. Little is imported here: until `leave_at_ctrl_c` has run, Ctrl-C shows a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # typing takes as long as all else
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any


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
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_STATUS = 128  # the exit status is this plus the number of the signal
_GRACE = 0.5  # seconds before the process is forced to end
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # progress bars hide it


def leave_at_ctrl_c() -> None:
    """End the process immediately at Ctrl-C until `end_at_ctrl_c` is called: nothing has been written yet."""

    def leave(*_: object) -> None:
        os.write(2, f"{INTERRUPTED}\n".encode())
        os._exit(_STATUS + signal.SIGINT)

    _handle(signal.SIGINT, leave)


class Ended(BaseException):
    """SIGTERM or SIGHUP came: the process frees its resources, as at Ctrl-C."""


_came: list[int] = []  # SIGTERM or SIGHUP, once it has come
_told: list[bool] = []  # not empty once the line about Ctrl-C is written


def told_of_ctrl_c() -> None:
    """The caller writes the line about Ctrl-C: it is not written again if the process is forced to end."""
    _told.append(True)


def end_at_signals() -> None:
    """End the process soon after Ctrl-C, SIGTERM or SIGHUP, also if a library catches the exception or native code
    delays it."""
    from threading import Thread

    sys.unraisablehook = _unraisable
    _handle(signal.SIGINT, signal.default_int_handler)
    for number in _ENDING[1:]:
        _handle(number, _end)
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


def finish() -> None:
    """Remove temporary folders that are left; end by SIGTERM or SIGHUP if it came, so that the parent sees it."""
    from deepthink_cli.io.temporary import remove_temporary_folders

    leave_at_ctrl_c()
    for number in _ENDING[1:]:
        _handle(number, signal.SIG_DFL)
    remove_temporary_folders()
    for number in _came:
        os.kill(os.getpid(), number)


def _handle(number: int, handler: Callable[..., object] | signal.Handlers) -> None:
    # A process started with a signal ignored, as a shell starts background jobs and nohup a program, keeps ignoring it.
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    if not _came:  # a second signal does not interrupt the end that the first has begun
        _came.append(number)
        raise Ended


def _unraisable(unraisable: Any) -> None:
    """Print nothing about an interrupt that arrived in a destructor, where it cannot be raised."""
    if not isinstance(unraisable.exc_value, (KeyboardInterrupt, Ended)):
        sys.__unraisablehook__(unraisable)


def _wait_and_end(reader: int) -> None:
    from deepthink_cli.io.temporary import remove_temporary_folders

    while (number := os.read(reader, 1)[0]) not in _ENDING:
        pass
    time.sleep(_GRACE)
    remove_temporary_folders()
    show_cursor = _SHOW_CURSOR if os.isatty(2) else ""
    said = f"{INTERRUPTED}\n" if number == signal.SIGINT and not _told else ""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f"{show_cursor}{said}".encode())
    os._exit(_STATUS + number)
