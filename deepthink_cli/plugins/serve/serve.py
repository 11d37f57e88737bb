"""Answer requests on a socket until a signal ends it: the work of `deepthink serve`.

A connection is uvicorn's HTTP/1.1, which ends if its answer is not read.
"""

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
from uvicorn.protocols.http.h11_impl import H11Protocol

from deepthink_cli.io.prefetch import OURS
from deepthink_cli.plugins.serve.app import Server

ANSWER_SECONDS = 30.0  # the time in which a client must read an answer
CONNECTIONS = 1024  # at once; a request on another one is refused
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
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=END_SECONDS,
    )
    running = _Running(config, load)
    for name in ("uvicorn.error", "asyncio"):  # they log mistakes of clients, and errors that the application tells
        logging.getLogger(name).setLevel(logging.CRITICAL)
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


class Connection(H11Protocol):
    """A connection that ends if its answer is not read."""

    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that writing is paused while anything is not sent

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_waiting()
        super().resume_writing()

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
