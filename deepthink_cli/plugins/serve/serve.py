"""Answer requests on a socket until a signal ends it: the work of `deepthink serve`."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

import uvicorn

from deepthink_cli.events import Detail, Tell, Warn
from deepthink_cli.io.prefetch import OURS
from deepthink_cli.plugins.serve.app import Server
from deepthink_cli.plugins.serve.connection import Connection

END_SECONDS = 20  # the time for answers to arrived requests after a signal


def serve(server: Server, listener: socket.socket, load: Callable[[], None]) -> None:
    """Answer requests while `load` loads the model, and on; SIGTERM or Ctrl-C ends it after all arrived requests.

    Raises as `load` does, and KeyboardInterrupt after Ctrl-C; a second Ctrl-C does not wait for requests.
    """
    config = uvicorn.Config(
        server.app(),
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=END_SECONDS,
    )
    running = _Running(config, load)
    server.connections = lambda: len(running.server_state.connections)
    with _told_by(server.tell):
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


@contextmanager
def _told_by(tell: Tell) -> Iterator[None]:
    """Tell, inside the block, the logs of uvicorn and asyncio."""
    handler = _Told(tell)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class _Told(logging.Handler):
    """Tells errors in a line, and details of mistakes of clients and of requests that the end of the server cuts."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage().strip() + ("" if error is None else f": {error!r}")
        detail = record.levelno < logging.ERROR or isinstance(error, asyncio.CancelledError)
        self.tell(Detail(text) if detail else Warn(text))
