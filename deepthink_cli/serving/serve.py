"""Answer requests on a socket until a signal ends it: what `deepthink serve` does."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from deepthink_cli.serving.app import Server

CONNECTIONS = 1024  # at once; a request on another one is answered with 503


def serve(server: Server, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C, first those that have arrived; calls `ready` when it can be reached.

    Raises KeyboardInterrupt after Ctrl-C; a second one does not wait for requests.
    """
    config = uvicorn.Config(
        server.app(),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
    )
    running = _Running(config, ready)
    running.run([listener])
    if running.interrupted:
        raise KeyboardInterrupt
    server.batches.close()


class _Running(uvicorn.Server):
    """A server that ends without sending its signals to the process again."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready, self.interrupted = ready, False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
        before = {each: signal.signal(each, self.handle_exit) for each in heard}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.interrupted = self.interrupted or sig == signal.SIGINT
        super().handle_exit(sig, frame)
