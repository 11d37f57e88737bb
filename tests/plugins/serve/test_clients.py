"""Clients that do not do as they should: they read nothing, hang up, send slowly or too much together, or no HTTP."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from threading import Event, Timer
from typing import Any, TypeVar

import pytest
from helpers.said import Captured
from helpers.served import free_port, while_serving
from helpers.waiting import wait_until

from deepthink_cli.cli.main import run
from deepthink_cli.plugins.serve.served import ServedMemory

Answer = TypeVar("Answer")
LARGE = 2**23  # bytes of an answer, more than the system keeps for a client that does not read


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "1")


@pytest.fixture
def served(memory: Path) -> Callable[..., Any]:
    """What a client returns, to which a function is given that connects to a server with further options."""
    port = free_port()

    def served_to(client: Callable[[Callable[[], socket.socket]], Answer], *options: str) -> Answer:
        def connect() -> socket.socket:
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
            made.settimeout(90)
            made.connect(("127.0.0.1", port))
            return made

        def ready() -> bool:
            with suppress(ConnectionRefusedError), connect() as first:
                first.sendall(request("/health"))
                return received(first)[0] == 200
            return False

        def ask() -> Answer:
            wait_until(ready)
            return client(connect)

        return while_serving(lambda: run(["serve", str(memory), "--port", str(port), *options]), ask)

    return served_to


def request(path: str, body: bytes | None = None) -> bytes:
    """The bytes of a request, of a POST for one with a body."""
    if body is None:
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def labelled(note: str = "") -> bytes:
    """A request for a label, whose answer has the note, too."""
    return request("/predict", json.dumps({"review": "a kind film", "note": note}).encode())


def received(connection: socket.socket) -> tuple[int, Mapping[str, str], bytes]:
    """The status, the headers and the body of an answer."""
    answer = HTTPResponse(connection)
    answer.begin()
    return answer.status, answer.headers, answer.read()


def test_a_signal_ends_a_server_whose_client_reads_nothing(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.serve.serve.END_SECONDS", 1)
    held = list[socket.socket]()
    late = Timer(60, lambda: held[0].close())

    def asked(connect: Callable[[], socket.socket]) -> None:
        held.append(connect())
        late.start()
        held[0].sendall(labelled("x" * LARGE))
        assert held[0].recv(1) == b"H"

    served(asked)
    assert late.is_alive()
    late.cancel()


def test_an_answer_that_is_not_read_ends_its_connection(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.serve.serve.ANSWER_SECONDS", 0.2)

    def asked(connect: Callable[[], socket.socket]) -> int:
        with connect() as connection:
            connection.sendall(labelled("x" * LARGE))
            assert connection.recv(1) == b"H"
            time.sleep(1)
            return sum(map(len, iter(lambda: connection.recv(2**16), b"")))

    assert served(asked) < LARGE


@pytest.mark.parametrize("end", [-5, None], ids=["within its body", "before its answer"])
def test_a_client_that_hangs_up_is_one_detail(
    end: int | None, served: Callable[..., Any], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Event()
    monkeypatch.setattr("deepthink_cli.plugins.serve.app.LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ServedMemory, "__call__", lambda _, rows: [[] for _ in rows if gone.wait(30)])

    def asked(connect: Callable[[], socket.socket]) -> None:
        with connect() as connection:
            connection.sendall(labelled()[:end])

        def is_told() -> bool:
            said.extend(capsys.readouterr().err.splitlines())
            return said[-1] == "a client hung up before it was answered"

        wait_until(is_told)
        gone.set()

    said = list[str]()
    served(asked, "-v")
    assert said[-2].startswith("serving ")
    assert capsys.readouterr().err == ""


def test_bodies_that_arrive_together_are_bounded_by_their_sum(served: Callable[..., Any]) -> None:
    def asked(connect: Callable[[], socket.socket]) -> None:
        whole = labelled("x" * (2**20 - 100))
        clients = [connect() for _ in range(8)]
        for client in clients:
            client.sendall(whole[:-1])
        wait_until(lambda: len(select.select(clients, [], [], 0)[0]) == 4, 30)
        refused = select.select(clients, [], [], 0)[0]
        for client in clients:
            if client in refused:
                status, headers, answer = received(client)
                assert (status, headers["Retry-After"]) == (503, "1")
                assert json.loads(answer) == {
                    "errors": [{"message": "too many bodies arrive together; try again later"}]
                }
            else:
                client.sendall(whole[-1:])
                assert received(client)[0] == 200
            client.close()
        with connect() as client:
            client.sendall(whole)
            assert received(client)[0] == 200

    served(asked, "--max-body", "1")


def test_too_many_connections_and_no_http_are_refused(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.serve.serve.CONNECTIONS", 2)

    def asked(connect: Callable[[], socket.socket]) -> None:
        with connect(), connect() as connection:
            connection.sendall(request("/health"))
            assert received(connection)[0] == 503
        with connect() as connection:
            connection.sendall(b"hello\r\n\r\n")
            assert received(connection)[0] == 400

    served(asked, "-q")
    assert capsys.readouterr().err == ""
