"""The address of a server is its own before the model is loaded, and no other server's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from helpers.said import Captured
from helpers.served import while_serving
from helpers.waiting import wait_until

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.serve.listening import listening
from deepthink_cli.plugins.serve.options import ServeOptions
from deepthink_cli.plugins.serve.served import ServedMemory

ROW = {"review": "a kind film"}


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "1")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Until it is set, no model is loaded."""
    event, load = Event(), ServedMemory.load

    def waiting(self: ServedMemory, *given: Any) -> None:
        assert event.wait(90)
        load(self, *given)

    monkeypatch.setattr(ServedMemory, "load", waiting)
    return event


def client_of(path: Path) -> httpx.Client:
    """A client of the socket, once there is one."""
    wait_until(path.exists)
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path), retries=5), base_url="http://localhost", timeout=90
    )


def test_until_the_model_is_loaded_requests_are_told_to_try_again(memory: Path, tmp_path: Path, held: Event) -> None:
    path = tmp_path / "socket"

    def asked() -> None:
        with client_of(path) as client:
            refused = client.post("/predict", json=ROW)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            assert refused.json() == {"errors": [{"message": "the model is being loaded; try again later"}]}
            health = client.get("/health")
            assert (health.status_code, health.headers["Retry-After"], health.json()["status"]) == (503, "1", "loading")
            held.set()
            wait_until(lambda: client.get("/health").status_code == 200)
            assert client.get("/health").json()["status"] == "ok"
            assert client.post("/predict", json=ROW).json()["index"] == 0

    while_serving(lambda: run(["serve", str(memory), "--socket", str(path), "-q"]), asked)
    assert not path.exists()


@pytest.mark.parametrize("kind", ["--socket", "--port"])
def test_a_second_server_ends_at_once_while_the_first_one_loads(
    kind: str, memory: Path, tmp_path: Path, held: Event
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = str(tmp_path / "socket") if kind == "--socket" else str(free.getsockname()[1])
    line = [sys.executable, "-m", "deepthink_cli", "serve", str(memory), kind, place]
    with listening(ServeOptions.checked(**{kind.lstrip("-"): place})):
        second = subprocess.run(line, capture_output=True, text=True, timeout=90)
        assert kind != "--socket" or Path(place).exists()
    assert second.returncode == 2
    (message,) = second.stderr.splitlines()
    assert f"{kind} {place}: " in message


def test_a_socket_is_removed_only_by_the_server_that_made_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    options = ServeOptions.checked(socket=path)
    with listening(options) as first:
        first.close()  # as a server does before it answers the last requests
        with listening(options):
            made = path.lstat().st_ino
            with pytest.raises(InputError, match="another process listens on it"), listening(options):
                pass
            assert path.lstat().st_ino == made
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.exists()


def test_a_model_that_cannot_be_loaded_ends_the_server_with_the_reason(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def failing(*_: object) -> None:
        raise InputError("made by another model")

    monkeypatch.setattr(ServedMemory, "load", failing)
    assert run(["serve", str(memory), "--socket", str(tmp_path / "socket")]) == 2
    assert capsys.readouterr().err == "deepthink: made by another model\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_a_server_that_loads(
    sent: signal.Signals, code: int, memory: Path, tmp_path: Path, held: Event
) -> None:
    path, codes = tmp_path / "socket", list[int]()

    def asked() -> None:
        with client_of(path) as client:
            assert client.get("/health").status_code == 503

    while_serving(lambda: codes.append(run(["serve", str(memory), "--socket", str(path)])), asked, sent)
    assert codes == [code]
    held.set()
