"""The options of a server: where it listens, its token, and its limits."""

from __future__ import annotations

import ipaddress
import os
import socket
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
    token_file: Annotated[
        Path | None,
        Flag(
            LISTEN,
            f"File whose first line is the token that every request needs. Default: the variable {TOKEN}.",
            "FILE",
        ),
    ] = None
    max_body: Annotated[
        int, Field(ge=1), Flag(DATA, "Largest body of a request, in MiB.", "MIB", hint="a number of MiB, 1 or more")
    ] = 16
    max_rows: Annotated[
        int, Field(ge=1), Flag(DATA, "Most rows of one request.", "N", hint="a number of rows, 1 or more")
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
        token = os.environ.get(TOKEN, "")
        if self.token_file is not None:
            try:
                with self.token_file.open(encoding="utf-8") as file:
                    token = file.readline().strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
                reason = f"cannot be read ({reason}); name a file with a token"
                raise InputError.of("token_file", self.token_file, reason) from error
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
        """Whether it listens on an address that only this machine reaches."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def listen(self) -> socket.socket:
        """A socket that listens there; raises InputError for an address that is none, or is in use."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family)
        except socket.gaierror as error:
            raise InputError.of("host", self.host, f"no address ({error.strerror}); use 127.0.0.1") from error
        except OSError as error:
            reason = f"not on {self.host} ({os.strerror(error.errno or 0)}); name another port, or 0 for a free one"
            raise InputError.of("port", self.port, reason) from error


def address_of(listener: socket.socket) -> str:
    """The address of a socket as clients write it: `http://127.0.0.1:8000`."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
