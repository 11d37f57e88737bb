"""The commands and the program of docs/serve.md, with a server, and with servers that answer wrongly."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from conftest import Models, write_rows
from helpers.said import Captured
from helpers.waiting import wait_until
from starlette.types import ASGIApp

from deepthink_cli.cli.main import run
from deepthink_cli.plugins.serve.app import Server
from deepthink_cli.plugins.serve.options import ServeOptions, address_of
from deepthink_cli.plugins.serve.served import ServedMemory
from deepthink_cli.prediction.scorer import Scorer

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "serve.md").read_text(encoding="utf-8")
TICKETS = ["I was charged twice", "The app crashes", "How do I log in?", "Größe ändern"]
ROWS: list[dict[str, object]] = [{"text": f"{TICKETS[n % 4]} ({n})"} for n in range(300)]


def block(language: str) -> str:
    """The only block in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def memory(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    solved: list[dict[str, object]] = [{"text": text, "team": "abca"[n]} for n, text in enumerate(TICKETS)]
    demos = write_rows(folder / "demos.jsonl", solved)
    path = folder / "mem.safetensors"
    assert run(["think", str(demos), "-m", str(models("llama")), "-T", "1", "-q", "-o", str(path)]) == 0
    return path


@contextmanager
def serving(app: ASGIApp, options: ServeOptions) -> Iterator[str]:
    """The address of an application."""
    with options.listen() as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        wait_until(lambda: server.started)
        yield address_of(listener)
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def address(memory: Path) -> Iterator[str]:
    labeller, options = ServedMemory(Scorer.open(memory)), ServeOptions.checked(port=0)
    labeller.load()
    server = Server(labeller, options)
    with serving(server.app(), options) as found:
        yield found


@pytest.fixture
def expected(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `predict` writes for the rows, which are files of the current folder."""
    monkeypatch.chdir(tmp_path)
    write_rows(Path("inputs.jsonl"), ROWS)
    Path("inputs.json").write_text(json.dumps(ROWS[:256], indent=1))
    assert run(["predict", str(memory), "inputs.jsonl", "-q", "-o", "out.jsonl"]) == 0
    return [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sends_a_row_and_a_file_of_rows(expected: list[Any], address: str) -> None:
    one, many = block("bash").replace("http://127.0.0.1:8000", address).splitlines()
    answers = [subprocess.run(["bash", "-c", each], capture_output=True, check=True).stdout for each in (one, many)]
    assert json.loads(answers[0])["input"] == {"text": "I was charged twice"}
    assert json.loads(answers[1]) == expected[:256]


def test_the_program_prints_what_predict_prints(expected: list[Any], address: str, capsys: Captured) -> None:
    exec(block("python").replace("http://127.0.0.1:8000", address), {})
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == expected
