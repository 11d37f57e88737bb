"""The requests of a server, as a Starlette application."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from importlib.metadata import version
from queue import Full
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.errors import DeepThinkError, InputError, out_of_memory, ran_out_of_memory
from deepthink_cli.events import Detail, Tell, Warn, silent
from deepthink_cli.io.text import json_line, size
from deepthink_cli.plugins.serve.options import ServeOptions
from deepthink_cli.plugins.serve.served import Batches, ServedMemory, without_place
from deepthink_cli.scoring.pipeline import CHUNK, Part

KIND = "application/json"
RETRY = {"Retry-After": "1"}  # of every 503
BODY_SECONDS = 30.0  # the time in which the body of a request must arrive
LOOK_SECONDS = 1.0  # between two looks whether a client that waits is still there
BODIES = 4  # all unfinished bodies together are at most as large as so many of the largest


class Server:
    """Answers requests with a memory, within the limits of the options; requests need the `token`, if there is one."""

    def __init__(
        self, labeller: ServedMemory, options: ServeOptions, token: str | None = None, tell: Tell = silent
    ) -> None:
        self.labeller, self.options, self.token, self.tell = labeller, options, token, tell
        self.unfinished = 0  # bytes of the bodies of requests
        self.batches = Batches(labeller, CHUNK, options.max_waiting)

    def app(self) -> Starlette:
        """The application."""
        # Without a token: a page of another site, whose name was made to point here, sends that name as Host.
        hosts = ["localhost", "127.0.0.1", "[::1]", self.options.host]
        own = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
        middleware = [own if self.token is None else Middleware(Token, self.token)]
        routes = [Route("/predict", self.predict, methods=["POST"]), Route("/health", self.health)]
        handlers = {HTTPException: _refused, ClientDisconnect: self._hung_up, Exception: self._failed}
        return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)

    async def predict(self, request: Request) -> Response:
        """Label the rows of a request."""
        if not self.labeller.loaded:
            raise HTTPException(503, "the model is being loaded; try again later", RETRY)
        on_error = request.query_params.get("on_error", "stop")
        if on_error not in ("stop", "skip"):
            raise HTTPException(400, f"on_error={on_error}: use stop or skip")
        skip = on_error == "skip"
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
            raise HTTPException(415, f"send the header Content-Type: {KIND}")
        async with self._body(request) as body:
            single = not body.lstrip().startswith(b"[")
            try:
                rows = await run_in_threadpool(self.labeller.rows, bytes(body), self.options.max_rows)
            except InputError as error:
                raise HTTPException(400, without_place(str(error))) from error
            if len(rows) > self.options.max_rows:
                raise HTTPException(413, f"more than {self.options.max_rows:,} rows; send fewer at a time")
        if not skip and (mistakes := _mistakes(enumerate(rows))):
            return _json(mistakes, 422)
        answers = await self._answers(request, rows, alone=not single)
        numbered = [(index, each) for index, answer in enumerate(answers) for each in answer]
        if not skip and (mistakes := _mistakes(numbered)):
            return _json(mistakes, 422)
        made = [self.labeller.form.row(*each) for each in numbered]
        written = [{**row, **({"error": without_place(row["error"])} if "error" in row else {})} for row in made]
        return _json(written[0] if single and len(written) == 1 else written)

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytearray]:
        """The body, which counts as unfinished until the block ends.

        Refuses one that is too large, alone or with the others, before all of it is read, and one that does not arrive.
        """
        most, body = self.options.max_body * 2**20, bytearray()
        try:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    async for part in request.stream():
                        body += part
                        self.unfinished += len(part)
                        if len(body) > most:
                            raise HTTPException(413, f"more than {size(most)}; send fewer rows at a time")
                        if self.unfinished > BODIES * most:
                            raise HTTPException(503, "too many bodies arrive together; try again later", RETRY)
            except TimeoutError as error:
                raise HTTPException(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from error
            yield body
        finally:
            self.unfinished -= len(body)

    async def _answers(self, request: Request, rows: Sequence[Query | Skipped], alone: bool) -> list[Part]:
        """The answers to the rows of a request, which leaves the queue if its client hangs up."""
        if not rows:
            return []
        try:
            waiting: Future[list[Part]] = self.batches.submit(rows, alone)
        except Full as error:
            raise HTTPException(503, "too many requests wait; try again later", RETRY) from error
        answers = asyncio.wrap_future(waiting)
        try:
            while not (await asyncio.wait({answers}, timeout=LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    answers.cancel()
                    raise ClientDisconnect
        except asyncio.CancelledError as error:
            raise HTTPException(503, "the server ends; try again later", RETRY) from error
        try:
            return answers.result()
        except DeepThinkError as error:
            raise HTTPException(500, str(error)) from error
        except Exception as error:
            known = ran_out_of_memory(error)
            raise HTTPException(500, out_of_memory(error) if known else f"the model failed: {error!r}") from error

    async def _hung_up(self, request: Request, error: Exception) -> Response:
        """The answer, never sent, to a client that hung up (nginx has this status for it)."""
        self.tell(Detail("a client hung up before it was answered"))
        return Response(status_code=499)

    async def _failed(self, request: Request, error: Exception) -> Response:
        self.tell(Warn(f"a bug in deepthink: {error!r}"))
        return refusal(500, f"a bug in deepthink: {error!r}")

    async def health(self, request: Request) -> Response:
        """What is served, and whether the model is loaded."""
        served = self.labeller
        about = {
            "status": "ok" if served.loaded else "loading",
            "version": version("deepthink-cli"),
            "memory": served.scorer.memory.sha256,
            "model": served.scorer.memory.provenance.model.id,
            "iterations": list(served.scorer.memory.iterations),
            "calibrate": list(served.scorer.calibrate),
            "scoring": served.scorer.scoring.recorded,
            "max_rows": self.options.max_rows,
            "waiting": self.batches.waiting,
        }
        return _json(about, 200 if served.loaded else 503, None if served.loaded else RETRY)


def _mistakes(rows: Any) -> dict[str, Any]:
    """The body that names the rows, of (index, row), that were skipped; empty if there are none."""
    errors = [
        {"index": index, "message": without_place(str(problem))}
        for index, row in rows
        if isinstance(row, Skipped)
        for problem in row.problems
    ]
    return {"errors": errors} if errors else {}


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_line(value), status, headers, KIND)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, error.detail, error.headers)


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is refused."""
    return _json({"errors": [{"message": message}]}, status, headers)


class Token:
    """Refuses every request without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.app
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, self.expected):
                message = "the token is missing or wrong; send Authorization: Bearer TOKEN"
                answer = refusal(401, message, {"WWW-Authenticate": "Bearer"})
        await answer(scope, receive, send)
