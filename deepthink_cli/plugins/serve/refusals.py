"""The refusals of a server, always in JSON, and the refusals before a request is read."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepthink_cli.io.text import json_line

KIND = "application/json"
RETRY = {"Retry-After": "1"}  # of every 503
CONNECTIONS = 1024  # at once; a request on another one is refused


def body_of(message: str) -> bytes:
    """The body of a refusal."""
    return json_line({"errors": [{"message": message}]}).encode()


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is refused."""
    return Response(body_of(message), status, headers, KIND)


class Crowded:
    """Refuses requests while too many connections are open."""

    def __init__(self, app: ASGIApp, connections: Callable[[], int]) -> None:
        self.app, self.connections = app, connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.app
        if self.connections() > CONNECTIONS:
            answer = refusal(503, f"more than {CONNECTIONS:,} connections; try again later", RETRY)
        await answer(scope, receive, send)


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


class OwnHost:
    """Refuses requests for another host: a page of another site whose name was made to point here sends that name."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = refusal(400, f"the header Host names another host; send {self.hosts[0]}")

        async def trusted(*_: object) -> None:
            nonlocal answer
            answer = self.app

        async def unsent(message: Message) -> None:
            """Its own refusal is plain text."""

        await TrustedHostMiddleware(trusted, self.hosts, www_redirect=False)(scope, receive, unsent)
        await answer(scope, receive, send)
