"""Answer requests on a socket until a signal ends it: what `deepthink serve` does."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

import uvicorn

from deepthink_cli.io.prefetch import OURS
from deepthink_cli.serving.app import Server

CONNECTIONS = 1024  # at once; a request on another one is answered with 503


def serve(server: Server, listener: socket.socket, load: Callable[[], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C, first those that have arrived, while `load` loads the model.

    Raises what `load` raises, and KeyboardInterrupt after Ctrl-C; a second one does not wait for requests.
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
    running = _Running(config, load)
    running.run([listener])
    if running.interrupted:
        raise KeyboardInterrupt
    if running.failure is not None:
        raise running.failure


class _Running(uvicorn.Server):
    """A server that ends without sending its signals to the process again, and if the model cannot be loaded."""

    def __init__(self, config: uvicorn.Config, load: Callable[[], None]) -> None:
        super().__init__(config)
        self.load, self.interrupted = load, False
        self.failure: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        Thread(target=self._load, name=f"{OURS} loading", daemon=True).start()

    def _load(self) -> None:
        try:
            self.load()
        except BaseException as error:
            self.failure, self.should_exit = error, True

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
