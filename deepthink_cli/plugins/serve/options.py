"""The options of a server: where it listens, its token, and its limits."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from deepthink_cli.errors import InputError, option
from deepthink_cli.options import DATA, Flag, Options

TOKEN = "DEEPTHINK_SERVE_TOKEN"  # the variable of the token: the list of processes shows options, not variables
LISTEN = "Listening"


class ServeOptions(Options):
    """The address of a server, and its limits."""

    host: Annotated[
        str,
        Field(min_length=1),
        Flag(LISTEN, "Address to listen on; another one than this machine's own needs a token.", "HOST"),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Field(ge=0, le=65535),
        Flag(LISTEN, "Port to listen on; 0 takes a free one.", "PORT", hint="a port, from 0 to 65535"),
    ] = 8000
    socket: Annotated[
        Path | None,
        Flag(LISTEN, "Listen on a Unix socket, which only your user can open.", "PATH", variable=False),
    ] = None
    token_file: Annotated[
        Path | None,
        Flag(
            LISTEN,
            f"File whose first line is the token that every request needs. Default: the variable {TOKEN}.",
            "FILE",
        ),
    ] = None
    max_body: Annotated[
        int,
        Field(ge=1),
        Flag(DATA, "Largest body of a request, in MiB.", "MIB", hint="a number of MiB, 1 or more"),
    ] = 16
    max_rows: Annotated[
        int,
        Field(ge=1),
        Flag(DATA, "Most rows of one request.", "N", hint="a number of rows, 1 or more"),
    ] = 256
    max_waiting: Annotated[
        int,
        Field(ge=1),
        Flag(
            DATA,
            "Most requests that wait for the model; more are answered with 503.",
            "N",
            hint="a number of requests, 1 or more",
        ),
    ] = 64

    def token(self) -> str | None:
        """The token, if any; raises InputError for a wrong token, and without a token if others can connect."""
        token = os.environ.get(TOKEN, "") if self.token_file is None else _first_line(self.token_file)
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise InputError(f"{self.token_file or TOKEN}: a token has printable ASCII characters without blanks only")
        if self.token_file is not None and not token:
            raise InputError.of("token_file", self.token_file, "its first line is empty; write a token there")
        if not token and not self.is_local:
            raise InputError.of(
                "host",
                self.host,
                f"others can connect to it, which needs a token: set {TOKEN}, give {option('token_file')}, or listen "
                "on 127.0.0.1",
            )
        return token or None

    @property
    def is_local(self) -> bool:
        """Whether it listens on a Unix socket, or on an address that only this machine reaches."""
        try:
            return self.socket is not None or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError.of("token_file", path, f"cannot be read ({reason}); name a file with a token") from error
