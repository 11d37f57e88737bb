"""`--batch-invariant`: the scores of a row are the same bits, whatever the other rows of the file are."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.inline_workers import labelling_inline

from deepthink_cli.cli.main import run

ROWS = [
    {"review": f"{'a truly ' * (n % 4)}{word} film", "sentiment": ("positive", "negative")[n % 2]}
    for n, word in enumerate(("kind", "dull", "slow", "wise", "warm", "odd", "flat"))
]


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "2")


def labelled(command: str, memory: Path, rows: list[dict[str, str]], *more: str) -> list[list[dict[str, float]]]:
    """The scores of each row by each iteration."""
    path = write_rows(memory.parent / "rows.jsonl", rows)
    output = memory.parent / f"{command}.jsonl"
    words = [command, str(memory), str(path), "--batch-invariant", "-q", "-o", str(output), *more]
    assert run(words) == 0
    written = map(json.loads, output.read_text().splitlines())
    return [[row["scores"] for row in of_row] for _, of_row in groupby(written, itemgetter("index"))]


@pytest.mark.parametrize("command", ["predict", "eval"])
def test_a_file_its_reverse_and_single_rows_have_the_same_scores(command: str, memory: Path) -> None:
    whole = labelled(command, memory, ROWS)
    assert len({json.dumps(scores) for scores in whole}) == len(ROWS)
    assert labelled(command, memory, ROWS[::-1]) == whole[::-1]
    assert [labelled(command, memory, [row])[0] for row in ROWS] == whole
    assert labelled(command, memory, ROWS, "--batch-tokens", "8") == whole
    assert labelled(command, memory, ROWS, "--engine", "packed") == whole


def test_workers_have_the_scores_of_one_process(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelling_inline(monkeypatch)
    rows = ROWS * 40  # more than a chunk
    assert labelled("predict", memory, rows, "--workers", "2") == labelled("predict", memory, ROWS) * 40


@pytest.mark.plugins
def test_passes_that_are_another_programs_are_refused(memory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(memory.parent / "in.jsonl", ROWS)
    assert run(["predict", str(memory), str(path), "--batch-invariant", "--engine", "vllm"]) == 2
    assert "--batch-invariant: not with vllm, which chooses its own passes" in capsys.readouterr().err
