"""The command: refusals before a model is loaded, an address that is its own, and a process that answers and ends."""

from __future__ import annotations

import http.client
import json
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
from helpers.imports import modules_of
from helpers.said import Captured, refused
from helpers.served import while_serving
from helpers.waiting import wait_until

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.serve.listening import listening
from deepthink_cli.plugins.serve.options import ServeOptions
from deepthink_cli.plugins.serve.served import ServedMemory

HELD = """
import sys, time
from deepthink_cli.plugins.serve.served import ServedMemory
label = ServedMemory.__call__
def slowly(self, rows):
    sys.stderr.write("labelling\\n")
    sys.stderr.flush()
    time.sleep(1)
    return label(self, rows)
ServedMemory.__call__ = slowly
sys.argv[0] = "deepthink"
from deepthink_cli.cli.main import main
main()
"""


class Connection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak)]
)
def test_a_signal_ends_the_process_after_the_request_in_flight_is_answered(
    memory: Path, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    path = tmp_path / "socket"
    command = [sys.executable, "-c", HELD, "serve", str(memory), "--socket", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while "serving" not in (line := process.stderr.readline()):
        assert line
    connection = Connection(str(path))
    connection.request("POST", "/predict", json.dumps({"review": "a kind film"}), {"Content-Type": "application/json"})
    assert process.stderr.readline() == "labelling\n"
    process.send_signal(sent)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["index"]) == (200, 0)
    assert process.wait(10) == code
    assert not path.exists()


def test_an_address_that_others_reach_needs_a_token_which_is_said_without_torch(
    memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.delenv("DEEPTHINK_SERVE_TOKEN", raising=False)
    line = ["serve", str(memory), "--host", "0.0.0.0"]
    assert "torch" not in modules_of(f"from deepthink_cli.cli.main import run\nassert run({line!r}) == 2\n")
    assert "others can connect to it, which needs a token: set DEEPTHINK_SERVE_TOKEN" in refused(capsys, *line)


def test_without_the_extra_it_is_said_how_to_install_it(memory: Path) -> None:
    program = f"""
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "uvicorn" else find(name, *more)
from deepthink_cli.cli.main import run
assert run(["serve", {str(memory)!r}]) == 1
"""
    assert "torch" not in modules_of(program)


@pytest.mark.parametrize(
    ("token", "message"), [("", "its first line is empty"), ("two words", "without blanks"), (None, "cannot be read")]
)
def test_a_token_file_that_holds_no_token_is_refused(
    memory: Path, tmp_path: Path, capsys: Captured, token: str | None, message: str
) -> None:
    path = tmp_path / "token"
    if token is not None:
        path.write_text(f"{token}\n")
    assert message in refused(capsys, "serve", memory, "--token-file", path)


def test_places_in_use_are_refused_and_an_abandoned_socket_is_not(
    memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert run(["serve", str(memory), "--port", str(other.getsockname()[1])]) == 2
    assert "name another port" in capsys.readouterr().err
    path = tmp_path / "socket"
    path.write_text("")
    options = ServeOptions.checked(socket=path)
    with pytest.raises(InputError, match="is a file and no socket"), listening(options):
        pass
    path.unlink()
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
        abandoned.listen()
        with pytest.raises(InputError, match="another process listens on it"), listening(options):
            pass
    with listening(options):
        assert os.stat(path).st_mode & 0o777 == 0o600
    assert not path.exists()


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
