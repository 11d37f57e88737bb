"""`predict --dry-run`: nothing is written, and the counts are those of the command without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from helpers.said import Captured

from deepthink_cli.cli.main import run
from deepthink_cli.scoring import probe as probing

WORDS = ("kind", "dull", "slow", "wise", "warm")


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "2")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A hundred rows of equal length, more than the probe times."""
    rows = [
        {"review": f"a {WORDS[n % 5]} film {n + 100}", "sentiment": ("positive", "negative")[n % 2]} for n in range(100)
    ]
    return write_rows(tmp_path / "in.jsonl", rows)


def estimated(arguments: list[object], capsys: Captured, code: int = 0) -> dict[str, Any]:
    """The estimate of a command that writes no file."""
    folder = Path(str(arguments[2])).parent
    before = sorted(folder.rglob("*"))
    capsys.readouterr()
    assert run([*map(str, arguments), "--dry-run", "--json"]) == code
    assert sorted(folder.rglob("*")) == before
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    return values


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_the_rows_are_those_of_the_command(
    suffix: str, memory: Path, inputs: Path, tmp_path: Path, capsys: Captured
) -> None:
    values = estimated(["predict", memory, inputs, "-o", tmp_path / f"out{suffix}"], capsys)
    assert (values["rows"], values["skipped"], values["probed"]) == (100, 0, 64)
    assert values["seconds"] > values["probed_seconds"]


def test_the_tokens_are_counted_or_those_of_the_sample(
    memory: Path, inputs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = estimated(["predict", memory, inputs], capsys)
    monkeypatch.setattr(probing, "EXACT", 10)
    about = estimated(["predict", memory, inputs], capsys)
    assert (exact["tokens_exact"], about["tokens_exact"]) == (True, False)
    assert about["tokens"] == pytest.approx(exact["tokens"], rel=0.03)


def test_an_unreadable_row_is_counted_as_skipped(memory: Path, inputs: Path, tmp_path: Path, capsys: Captured) -> None:
    inputs.write_text("not json\n" + inputs.read_text())
    arguments: list[object] = ["predict", memory, inputs, "--on-error", "skip", "-o", tmp_path / "out.jsonl"]
    values = estimated(arguments, capsys, code=1)
    assert (values["rows"], values["skipped"]) == (101, 1)
    assert estimated([*arguments, "--allow-errors", "1"], capsys)["skipped"] == 1


@pytest.mark.parametrize("row", ["not json", json.dumps({"review": ""}), json.dumps({"review": "fine " * 3000})])
def test_errors_are_those_of_the_command(row: str, memory: Path, inputs: Path, capsys: Captured) -> None:
    inputs.write_text(inputs.read_text() + row + "\n")
    messages = []
    for more in ([], ["--dry-run"]):
        assert run(["predict", str(memory), str(inputs), "-q", *more]) == 2
        messages.append(capsys.readouterr().err)
    assert messages[0] == messages[1] != ""


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--resume", "-o", "out.jsonl"], "--resume"),
        (["--workers", "2"], "--workers"),
        (["--show-prompt"], "--show-prompt"),
    ],
)
def test_what_a_sample_in_this_process_does_not_tell_is_refused(
    more: list[str], named: str, memory: Path, inputs: Path, capsys: Captured
) -> None:
    assert run(["predict", str(memory), str(inputs), "--dry-run", *more]) == 2
    assert re.search(f"{named}[^:]*: not with --dry-run; omit one of the two", capsys.readouterr().err)


def test_standard_input_is_refused(memory: Path, capsys: Captured) -> None:
    assert run(["predict", str(memory), "-", "--dry-run"]) == 2
    assert "--dry-run: standard input can be read only once" in capsys.readouterr().err


def test_json_for_all_commands_does_not_hinder_predict(
    memory: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPTHINK_JSON", "1")
    assert run(["predict", str(memory), str(inputs), "-q"]) == 0
