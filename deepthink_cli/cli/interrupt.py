"""Ctrl-C ends the program within a second, whatever it is busy with: all that it writes bears being killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

from deepthink_cli.errors import ExitCode

INTERRUPTED = "deepthink: interrupted; every file is whole"
_PATIENCE = 0.5  # seconds in which the program may tidy up by itself
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # a progress bar had hidden it


def leave_at_ctrl_c() -> None:
    """Until `end_at_ctrl_c`, end the process at Ctrl-C at once: it is still importing, and has written nothing."""

    def leave(*_: object) -> None:
        os.write(2, f"{INTERRUPTED}\n".encode())
        os._exit(ExitCode.INTERRUPTED)

    _handle(leave)


def end_at_ctrl_c() -> None:
    """From now on, end the process soon after Ctrl-C also where a library swallows it, or computes and cannot hear it."""
    sys.unraisablehook = _unraisable
    _handle(signal.default_int_handler)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    # Written to by the signal itself: Python's own handler waits until the main thread is back from what it does.
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    Thread(target=_wait_and_end, args=(heard,), daemon=True).start()


def _handle(handler: Callable[..., object]) -> None:
    # What was started to ignore Ctrl-C, as a shell starts what runs beside it, goes on ignoring it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def _unraisable(found: Any) -> None:
    """Leave untold an interrupt that came while Python cleared something up, and could not be raised there."""
    if not isinstance(found.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(found)


def _wait_and_end(heard: int) -> None:
    while os.read(heard, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(_PATIENCE)
    shown = _SHOW_CURSOR if os.isatty(2) else ""
    os.write(2, f"{shown}{INTERRUPTED}\n".encode())
    os._exit(ExitCode.INTERRUPTED)
