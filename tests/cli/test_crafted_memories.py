"""Memories with a valid digest and metadata that no `think` writes: commands end with one line, never as a bug."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_reviews, write_rows
from helpers import by_hand
from helpers.by_hand import changed, write_parts
from helpers.said import Captured

from deepthink_cli.cli.main import run

Parts = tuple[dict[str, Any], dict[str, Any], bytes]
COMMANDS = {
    "inspect": "inspect MEM",
    "inspect --json": "inspect MEM --json",
    "predict": "predict MEM ROWS --at all",
    "eval": "eval MEM ROWS",
    "diff": "diff MEM GOOD",
    "diff as B": "diff GOOD MEM --json",
    "quantize": "quantize MEM --to int8 -o OUT",
    "export": "export MEM --to peft -o OUT",
    "push": "push MEM me/memory --dry-run --yes",
    "generate": "generate MEM ROWS --max-new-tokens 1",
}
LONG = "x" * 5000


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of the built-in model with two iterations."""
    folder = tmp_path_factory.mktemp("crafted")
    path = folder / "good.safetensors"
    words = ["think", str(write_reviews(folder / "demos.jsonl")), "-T", "2", "--keep", "all", "-q", "-o", str(path)]
    assert run(words) == 0
    return path


@pytest.fixture(scope="module")
def parts(good: Path) -> Parts:
    """Its metadata, its tensors as the header lists them, and their bytes."""
    return by_hand.parts(good)


@pytest.fixture
def ends(good: Path, tmp_path: Path, capsys: Captured) -> Callable[[str, Path], tuple[int, str]]:
    """Run one of the commands on a memory: its exit code and what it wrote on standard error."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": "a kind film", "sentiment": "positive"}])

    def command(words: str, memory: Path) -> tuple[int, str]:
        places = {"MEM": str(memory), "GOOD": str(good), "ROWS": str(rows), "OUT": str(tmp_path / "out.safetensors")}
        capsys.readouterr()
        code = run([places.get(word, word) for word in words.split()])
        return code, capsys.readouterr().err

    return command


@pytest.mark.parametrize("name", [LONG, "~nobody-of-this-name/model", "a\x00b", "", "\n"])
@pytest.mark.parametrize("words", [COMMANDS["predict"], COMMANDS["diff"]])
def test_a_model_whose_name_is_no_path_is_told_in_one_line(
    words: str, name: str, ends: Callable[[str, Path], tuple[int, str]], parts: Parts, tmp_path: Path
) -> None:
    metadata, *rest = parts
    mutation = changed(metadata, ("model", "id"), name)
    code, error = ends(words, write_parts(tmp_path / "mem.safetensors", mutation, *rest))
    assert code in ((2,) if words.startswith("predict") else (0, 2))  # diff reads no model
    assert len([line for line in error.splitlines() if line.startswith("deepthink: ")]) <= 1


@pytest.mark.plugins
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_values_that_are_not_finite_are_told_wherever_their_iteration_is_read(
    words: str, ends: Callable[[str, Path], tuple[int, str]], parts: Parts, tmp_path: Path
) -> None:
    metadata, tensors, body = parts
    begin = tensors["iteration.1.layer.0.keys"]["data_offsets"][0]
    broken = body[:begin] + struct.pack("<f", float("nan")) + body[begin + 4 :]
    code, error = ends(words, write_parts(tmp_path / "mem.safetensors", metadata, tensors, broken))
    assert code in (0, 2)
    assert code == 0 or "layer 0's keys of iteration 1 hold NaN or infinite values" in error
