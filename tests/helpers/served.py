"""A server in the main thread of the test, where signals arrive, and its client in another thread."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def while_serving(serve: Callable[[], Any], client: Callable[[], Answer], sent: int = signal.SIGTERM) -> Answer:
    """What the client returns, while `serve` runs, which a signal ends once the client is done."""

    def ended(number: int, frame: FrameType | None) -> None:
        raise AssertionError("the server did not handle the signal")

    def ask() -> Answer:
        try:
            return client()
        finally:
            os.kill(os.getpid(), sent)

    before = signal.signal(sent, ended)
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask)
            serve()
            return answer.result()
    finally:
        signal.signal(sent, before)
