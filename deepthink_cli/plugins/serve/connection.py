"""One connection of a client: uvicorn's HTTP/1.1, with limits for clients that do not speak it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from deepthink_cli.plugins.serve.refusals import KIND, body_of

ANSWER_SECONDS = 30.0  # the time in which a client must read an answer


class Connection(H11Protocol):
    """A connection that ends if its answer is not read, refuses in JSON, and answers a client that sends no more."""

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

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open for writing: a whole request has arrived, and is not answered yet."""
        if self.cycle is None or self.cycle.more_body or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False
        return True

    def send_400_response(self, msg: str) -> None:
        body = body_of(msg)
        headers = [("Content-Type", KIND), ("Content-Length", str(len(body))), ("Connection", "close")]
        with suppress(h11.LocalProtocolError):  # an answer was begun
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
