"""The refusals of a server, in JSON, and the refusal of requests without the token."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from deepthink_cli.io.text import json_line

KIND = "application/json"
RETRY = {"Retry-After": "1"}  # of every 503


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is refused."""
    return Response(json_line({"errors": [{"message": message}]}), status, headers, KIND)


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
