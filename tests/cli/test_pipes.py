"""Rows from a pipe under a path, as of `<(...)` and /dev/stdin, are read once; commands that read them twice say so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import write_reviews
from helpers.said import Captured, refused, rows_of
from helpers.tiny import tiny_task

Piped = Callable[[Path], str]

pytestmark = pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system gives pipes no path")


@pytest.fixture(scope="module")
def folder(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four reviews, and a memory of them."""
    folder = tmp_path_factory.mktemp("memory")
    write_reviews(folder / "demos.jsonl")
    thought_of(folder / "mem.safetensors", "llama", "-T", "1")
    return folder


@pytest.fixture
def piped() -> Iterator[Piped]:
    """The path of a pipe with the contents of a file."""
    ends: list[int] = []

    def pipe(file: Path) -> str:
        reading, writing = os.pipe()
        os.write(writing, file.read_bytes())  # less than a pipe holds
        os.close(writing)
        ends.append(reading)
        return f"/dev/fd/{reading}"

    yield pipe
    for end in ends:
        os.close(end)


@pytest.mark.plugins
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "mem.safetensors", "ROWS"],
        ["predict", "mem.safetensors", "ROWS", "--on-error", "skip"],
        pytest.param(["generate", "mem.safetensors", "ROWS", "--max-new-tokens", "2"], marks=pytest.mark.plugins),
        ["select", "ROWS", "--demos-by", "random", "--shots", "2", "-o", "-"],
    ],
)
def test_rows_of_a_pipe_give_what_those_of_a_file_give(
    words: list[str], folder: Path, piped: Piped, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(folder)
    rows, outputs = folder / "demos.jsonl", []
    for path in (str(rows), piped(rows)):
        outputs.append(rows_of(capsys, *(path if word == "ROWS" else word for word in [*words, "-q"])))
    assert outputs[0] == outputs[1]
    assert outputs[0]


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("eval mem.safetensors ROWS", "LABELLED ROWS: evaluation reads its rows twice; give a file"),
        ("diff mem.safetensors mem.safetensors ROWS", "ROWS ROWS: both memories read the rows; give a file"),
        ("predict mem.safetensors ROWS --resume -o out.jsonl", "--resume: ROWS cannot be read again; give a file"),
    ],
)
def test_a_command_that_needs_them_twice_refuses_them(
    words: str, reason: str, folder: Path, piped: Piped, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(folder)
    path = piped(folder / "demos.jsonl")
    line = refused(capsys, *(path if word == "ROWS" else word for word in words.split()))
    named, _, rest = reason.rpartition("ROWS")
    assert line.startswith(f"deepthink: {named}{path}{rest}")


def test_a_task_file_that_names_one_is_refused(tmp_path: Path, folder: Path, piped: Piped, capsys: Captured) -> None:
    path = piped(folder / "demos.jsonl")
    task, _ = tiny_task(tmp_path, splits={split: {"file": path, "format": "jsonl"} for split in ("train", "test")})
    line = refused(capsys, "think", "--task", task, "-o", tmp_path / "mem.safetensors", "-q")
    assert line == f"deepthink: {path}: the rows of a task are read several times; give a file"
