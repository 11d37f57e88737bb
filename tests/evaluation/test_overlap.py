"""Evaluated rows that are among the demonstrations are counted, and the others are reported apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from helpers.said import Captured, output

from deepthink_cli.cli.main import run

REVIEWS = Path(__file__).parent.parent.parent / "examples" / "reviews"


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("overlap") / "mem.safetensors"
    assert run(["think", str(REVIEWS / "demos.jsonl"), "-T", "2", "--keep", "all", "-q", "-o", str(path)]) == 0
    return str(path)


def lines_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (REVIEWS / name).read_text().splitlines()]


def evaluated(memory: str, rows: Path, capsys: Captured, *words: str) -> tuple[dict[str, Any], str]:
    capsys.readouterr()
    assert run(["eval", memory, str(rows), "--json", *words]) == 0
    captured = capsys.readouterr()
    values = json.loads(captured.out)
    return {
        name: value for name, value in values.items() if "seconds" not in name and "per_second" not in name
    }, captured.err


def test_the_rest_is_what_an_evaluation_of_the_other_rows_alone_gives(
    memory: str, tmp_path: Path, capsys: Captured
) -> None:
    demonstrations, others = lines_of("demos.jsonl")[:3], lines_of("labelled.jsonl")[:20]
    mixed = write_rows(tmp_path / "mixed.jsonl", [*others[:10], *demonstrations, *others[10:]])
    alone = write_rows(tmp_path / "alone.jsonl", others)
    values, error = evaluated(memory, mixed, capsys)
    expected, silent = evaluated(memory, alone, capsys)
    assert (values["n"], values["demonstrations_among_rows"]["rows"]) == (23, 3)
    rest = values["demonstrations_among_rows"]["rest"]
    assert rest["n"] == 20
    assert rest["confusion"] == expected["confusion"]
    for now, before in zip(rest["results"], expected["results"], strict=True):
        assert (now["accuracy"], now["ci95"]) == (before["accuracy"], before["ci95"])
    assert "warning: 3 of 23 rows are among the demonstrations of" in error
    assert "demonstrations_among_rows" not in expected
    assert "among the demonstrations" not in silent


def test_where_all_rows_are_demonstrations_there_is_no_rest(memory: str, capsys: Captured) -> None:
    values, error = evaluated(memory, REVIEWS / "demos.jsonl", capsys)
    assert values["demonstrations_among_rows"] == {"rows": 16, "rest": None}
    assert "warning: all rows are among the demonstrations" in error


def test_the_accuracy_on_the_other_rows_is_printed_with_its_interval(
    memory: str, tmp_path: Path, capsys: Captured
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [*lines_of("demos.jsonl")[:2], *lines_of("labelled.jsonl")[:9]])
    out = output(capsys, "eval", memory, rows, "--calibrate", "contextual")
    apart = out[out.index("2 of the 11 rows are demonstrations of the memory; on the other 9:") :].splitlines()
    assert apart[1].split()[:4] == ["scores", "T", "accuracy", "95"]
    ways = [line.split()[:2] for line in apart[2:6]]
    assert ways == [["raw", "1"], ["raw", "2"], ["contextual", "1"], ["contextual", "2"]]
