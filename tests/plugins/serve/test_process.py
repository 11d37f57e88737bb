"""The command: refusals before a model is loaded, an address that is its own, and a process that answers and ends."""

from __future__ import annotations

import http.client
import json
import re
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
from helpers.served import free_port, while_serving
from helpers.waiting import wait_until

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
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


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak)]
)
def test_a_signal_ends_the_process_after_the_request_in_flight_is_answered(
    memory: Path, sent: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-c", HELD, "serve", str(memory), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while "serving" not in (line := process.stderr.readline()):
        assert line
    connection = http.client.HTTPConnection(re.search(r"at http://([\d.:]+);", line)[1])
    connection.request("POST", "/predict", json.dumps({"review": "a kind film"}), {"Content-Type": "application/json"})
    assert process.stderr.readline() == "labelling\n"
    process.send_signal(sent)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["index"]) == (200, 0)
    assert process.wait(10) == code


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


def test_a_port_in_use_is_refused(memory: Path, capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "name another port" in refused(capsys, "serve", memory, "--port", other.getsockname()[1])


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


def client_of(port: int) -> httpx.Client:
    """A client of the server, once there is one."""
    transport = httpx.HTTPTransport(retries=8)
    return httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=90)


def test_until_the_model_is_loaded_requests_are_told_to_try_again(memory: Path, held: Event) -> None:
    port = free_port()

    def asked() -> None:
        with client_of(port) as client:
            refused = client.post("/predict", json=ROW)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            assert refused.json() == {"errors": [{"message": "the model is being loaded; try again later"}]}
            health = client.get("/health")
            assert (health.status_code, health.headers["Retry-After"], health.json()["status"]) == (503, "1", "loading")
            held.set()
            wait_until(lambda: client.get("/health").status_code == 200)
            assert client.get("/health").json()["status"] == "ok"
            assert client.post("/predict", json=ROW).json()["index"] == 0

    while_serving(lambda: run(["serve", str(memory), "--port", str(port), "-q"]), asked)


def test_a_model_that_cannot_be_loaded_ends_the_server_with_the_reason(
    memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def failing(*_: object) -> None:
        raise InputError("made by another model")

    monkeypatch.setattr(ServedMemory, "load", failing)
    assert run(["serve", str(memory), "--port", "0"]) == 2
    assert capsys.readouterr().err == "deepthink: made by another model\n"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_a_server_that_loads(sent: signal.Signals, code: int, memory: Path, held: Event) -> None:
    port, codes = free_port(), list[int]()

    def asked() -> None:
        with client_of(port) as client:
            assert client.get("/health").status_code == 503

    while_serving(lambda: codes.append(run(["serve", str(memory), "--port", str(port)])), asked, sent)
    assert codes == [code]
    held.set()
