"""Standard streams that were closed before the program started, as with `>&-` in a shell."""

from __future__ import annotations

import os
import sys


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
