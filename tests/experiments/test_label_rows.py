"""The rows of one file are labelled by workers with the bytes of one process."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_reviews
from helpers.inline_workers import InlineExecutor, labelling_inline
from helpers.said import Captured

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.executors.base import Died, Unit
from deepthink_cli.scoring.pipeline import CHUNK

Inline = Callable[..., InlineExecutor]
ROWS = 2 * CHUNK + 20


@pytest.fixture(scope="module")
def folder(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two memories, and inputs of three chunks as JSON Lines and CSV."""
    folder = tmp_path_factory.mktemp("divided")
    words = ["think", str(write_reviews(folder / "demos.jsonl")), "-m", str(models("llama")), "-T", "2", "-q"]
    assert run([*words, "-o", str(folder / "mem.safetensors")]) == 0
    assert run([*words, "--eta", "0.5", "-o", str(folder / "other.safetensors")]) == 0
    rows = [{"id": n, "review": f"film {n} " * (1 + n % 7)} for n in range(ROWS)]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with open(folder / "in.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "review"])
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    """Have workers run in this process, and fail as a function says."""

    return partial(labelling_inline, monkeypatch)


def labels(folder: Path, name: str, output: Path, *more: str) -> int:
    return run(["predict", str(folder / "mem.safetensors"), str(folder / name), "-o", str(output), "-q", *more])


@pytest.mark.parametrize(
    ("name", "more"),
    [("in.jsonl", ["--calibrate", "contextual,batch"]), ("in.csv", ["--score", "mean", "--resume", "--ensemble"])],
    ids=["calibrated", "ensemble"],
)
def test_workers_write_the_bytes_of_one_process(
    name: str, more: list[str], folder: Path, inline: Inline, tmp_path: Path
) -> None:
    alone, divided = tmp_path / "alone.jsonl", tmp_path / "divided.jsonl"
    if "--ensemble" in more:
        more = [*more, str(folder / "other.safetensors")]
    assert labels(folder, name, alone, *more) == 0
    executor = inline()
    assert labels(folder, name, divided, *more, "--workers", "2") == 0
    assert divided.read_bytes() == alone.read_bytes()
    assert sum(isinstance(message, Unit) for _, message in executor.messages) == 3


def test_processes_write_the_bytes_of_one_process(folder: Path, tmp_path: Path) -> None:
    assert labels(folder, "in.csv", tmp_path / "alone.csv") == 0
    assert labels(folder, "in.csv", tmp_path / "divided.csv", "--workers", "2") == 0
    assert (tmp_path / "divided.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


def test_a_chunk_whose_worker_died_is_labelled_by_another_one(
    folder: Path, inline: Inline, tmp_path: Path, capsys: Captured
) -> None:
    def change(life: int, message: Any, event: Any) -> list[Any]:
        return [Died("was killed")] if life == 1 and isinstance(message, Unit) else [event]

    executor = inline(change)
    assert labels(folder, "in.jsonl", tmp_path / "out.jsonl", "--workers", "2") == 0
    assert executor.lives == 3
    assert "was killed" in capsys.readouterr().err
    found = [json.loads(line)["index"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == list(range(ROWS))


def test_a_row_that_is_too_long_is_told_as_in_one_process(
    folder: Path, inline: Inline, tmp_path: Path, capsys: Captured
) -> None:
    rows = (folder / "in.jsonl").read_text().splitlines(keepends=True)
    rows[CHUNK + 5] = json.dumps({"review": "long " * 5000}) + "\n"
    (tmp_path / "mem.safetensors").write_bytes((folder / "mem.safetensors").read_bytes())
    (tmp_path / "in.jsonl").write_text("".join(rows))
    said = []
    for more in ([], ["--on-error", "skip", "--allow-errors", "1"]):
        for divided in ([], ["--workers", "2"]):
            inline()
            output = tmp_path / f"{len(said)}.jsonl"
            code = labels(tmp_path, "in.jsonl", output, *more, *divided)
            said.append((code, capsys.readouterr().err, output.exists() and output.read_bytes()))
    assert said[0] == said[1]
    assert said[0][0] == 2
    assert f"in.jsonl:{CHUNK + 6}: " in said[0][1]
    assert said[2] == (0, said[3][1].replace("3.jsonl", "2.jsonl"), said[3][2])


@pytest.mark.parametrize("inputs", ["-", "no.jsonl"])
def test_rows_that_cannot_be_divided_are_refused(inputs: str, folder: Path, capsys: Captured) -> None:
    assert run(["predict", str(folder / "mem.safetensors"), inputs, "--workers", "2"]) == 2
    message = capsys.readouterr().err
    assert ("those of standard input arrive one by one; give a file, or omit it" in message) == (inputs == "-")
