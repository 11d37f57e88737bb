"""The command: refusals before a model is loaded, and a process that answers and ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import write_reviews
from helpers.imports import modules_of
from helpers.said import Captured

from deepthink_cli.cli.main import run

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


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    path = folder / "mem.safetensors"
    assert run(["think", str(write_reviews(folder / "demos.jsonl")), "-T", "1", "-q", "-o", str(path)]) == 0
    return path


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
    assert run(line) == 2
    assert "others can connect to it, which needs a token: set DEEPTHINK_SERVE_TOKEN" in capsys.readouterr().err


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
    assert run(["serve", str(memory), "--token-file", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_places_in_use_are_refused_and_an_abandoned_socket_is_not(
    memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    from deepthink_cli.errors import InputError
    from deepthink_cli.plugins.serve.listening import listening
    from deepthink_cli.plugins.serve.options import ServeOptions

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
