"""`predict --server` writes what `predict` writes, or says why it cannot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from conftest import REVIEWS, write_reviews, write_rows

from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.cli.main import run
from deepthink_cli.serving.app import Server
from deepthink_cli.serving.client import Remote
from deepthink_cli.serving.labeller import Labeller
from deepthink_cli.serving.listening import address_of, listening
from deepthink_cli.serving.options import ServeOptions

Captured = pytest.CaptureFixture[str]
REVIEW = [review for review, _ in REVIEWS]
MANY: list[dict[str, object]] = [
    {"id": place, "review": f"{REVIEW[place % 4]}, {'rather ' * (place % 7)}so {place}", "wéird": None}
    for place in range(300)
]
MIXED: list[dict[str, object]] = [
    {"review": REVIEW[0]},
    {"text": "no review"},
    {"review": "fine " * 3000, "id": 2},
    {"review": REVIEW[1], "candidates": ["negative", "positive", "mixed"]},
    {"review": REVIEW[2], "id": 4},
]


@pytest.fixture(scope="module")
def make(models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a memory of two iterations."""

    def memory(*options: str) -> Path:
        folder = tmp_path_factory.mktemp("memory")
        demos, path = write_reviews(folder / "demos.jsonl"), folder / "mem.safetensors"
        command = ["think", str(demos), "-m", str(models("llama")), "-T", "2", "--keep", "all", "-q", "-o", str(path)]
        assert run([*command, *options]) == 0
        return path

    return memory


@pytest.fixture(scope="module")
def memory(make: Callable[..., Path]) -> Path:
    return make()


@contextmanager
def serving(memory: Path, *, iteration: str = "last", token: str | None = None, **given: Any) -> Iterator[str]:
    """The address of a server of the memory."""
    labels = {name: given.pop(name) for name in ("calibrate", "score") if name in given}
    options = ServeOptions.checked(**{"port": 0, **given})
    labeller = Labeller(open_memory(memory, iteration), **labels)
    labeller.load()
    with listening(options) as listener:
        address = address_of(listener)
        server = Server(labeller, options, token)
        running = uvicorn.Server(uvicorn.Config(server.app(), log_config=None, lifespan="off", loop="asyncio"))
        thread = threading.Thread(target=running.run, args=([listener],))
        thread.start()
        try:
            while not running.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield address
        finally:
            running.should_exit = True
            thread.join(10)
            server.batches.close()


def output(folder: Path, name: str, *line: str) -> bytes:
    path = folder / name
    assert run(["predict", *line, "-q", "-o", str(path)]) == 0
    return path.read_bytes()


@pytest.mark.parametrize(
    ("rows", "name", "options"),
    [
        (MANY, "out.jsonl", []),
        (MANY, "out.csv", ["--top", "2", "--columns", "id"]),
        (MANY[:257], "out.jsonl", ["--threshold", "0.6", "--resume"]),
        (MANY[:1], "out.parquet", []),
        (MIXED, "out.jsonl", ["--on-error", "skip", "--allow-errors", "9"]),
    ],
)
def test_outputs_are_those_of_predict_byte_for_byte(
    memory: Path, tmp_path: Path, rows: list[dict[str, object]], name: str, options: list[str]
) -> None:
    inputs = str(write_rows(tmp_path / "in.jsonl", rows))
    with serving(memory) as address:
        here = output(tmp_path, f"here-{name}", str(memory), inputs, *options)
        there = output(tmp_path, f"there-{name}", str(memory), inputs, *options, "--server", address)
    assert there == here


def test_stored_corrections_and_all_iterations_are_those_of_predict(
    make: Callable[..., Path], tmp_path: Path, capsys: Captured
) -> None:
    memory, inputs = make("--calibrate", "contextual"), str(write_rows(tmp_path / "in.jsonl", MANY[:5]))
    with serving(memory, iteration="all", score="sum", socket=tmp_path / "socket") as address:
        there = output(tmp_path, "there.jsonl", str(memory), inputs, "--server", address)
    assert there == output(tmp_path, "here.jsonl", str(memory), inputs, "--at", "all")
    assert b'"stored"' in there


def test_a_row_that_only_the_server_refuses_is_named_by_its_line(
    memory: Path, tmp_path: Path, capsys: Captured
) -> None:
    inputs = write_rows(tmp_path / "in.jsonl", [MIXED[0], MIXED[2]])
    with serving(memory) as address:
        assert run(["predict", str(memory), str(inputs), "--server", address, "-q"]) == 2
    assert f"deepthink: {inputs}:2: too long" in capsys.readouterr().err


def test_another_memory_a_missing_token_and_too_small_limits_are_refused(
    make: Callable[..., Path], memory: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = str(write_rows(tmp_path / "in.jsonl", MANY[:2]))
    monkeypatch.delenv("DEEPTHINK_SERVE_TOKEN", raising=False)
    with serving(memory, token="s3cret") as address:
        line = ["predict", str(memory), inputs, "-q", "--server", address]
        assert run(line) == 1
        assert "HTTP 401: the token is missing or wrong" in capsys.readouterr().err
        monkeypatch.setenv("DEEPTHINK_SERVE_TOKEN", "s3cret")
        assert run(line) == 0
        assert "no option reads it" not in capsys.readouterr().err
        other = make("--eta", "0.5")
        assert run(["predict", str(other), inputs, "-q", "--server", address]) == 2
        assert "serves another memory" in capsys.readouterr().err
    with serving(memory, max_rows=2) as address:
        assert run([*line[:-1], address]) == 2
    assert "start it with --max-rows 256" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--server", "ftp://127.0.0.1"], "give http://HOST:PORT or unix:/PATH"),
        (["--server", "http://127.0.0.1:x"], "give http://HOST:PORT or unix:/PATH"),
        (["--server", "unix:/nowhere/socket"], "gives no answer (No such file or directory)"),
        (["--server", "unix:/s", "--score", "mean"], "--score: not with --server, which was started with its own"),
        (["--server", "unix:/s", "-m", "gpt2"], "-m: not with --server"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    memory: Path, tmp_path: Path, capsys: Captured, options: list[str], message: str
) -> None:
    inputs = write_rows(tmp_path / "in.jsonl", MANY[:2])
    assert run(["predict", str(memory), str(inputs), *options]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"Retry-After": "3"}, 3.0), ({}, 1.0), ({"Retry-After": "Fri, 31 Dec 2027 23:59:59 GMT"}, 1.0)],
)
def test_a_busy_server_is_asked_again_when_it_says(
    headers: dict[str, str], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(503, headers, b""), (200, {}, b"[]")])
    waited: list[float] = []
    monkeypatch.setattr(Remote, "_once", lambda *_: next(answers))
    monkeypatch.setattr(time, "sleep", waited.append)
    assert Remote("http://127.0.0.1:1").label([]) == []
    assert waited == [seconds]
