"""Shards of a run: together they are the run, and a report says what is missing."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest
from conftest import Models
from helpers.inline_workers import InlineExecutor
from helpers.said import Captured
from helpers.tiny import run_words

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors import local
from deepthink_cli.experiments.folder import MANIFEST, Shard
from deepthink_cli.experiments.results import FILE


@pytest.fixture
def words(models: Models, tmp_path: Path) -> list[str]:
    """A run of many units: one for each seed."""
    words = ["-T", "2", "--seeds", "6", "--batch-tokens", "64", "--limit", "2", "--shots", "2", "-q"]
    return run_words(tmp_path, models("llama"), *words)


def test_shards_are_the_run_and_are_reported_as_one(words: list[str], tmp_path: Path, capsys: Captured) -> None:
    whole, parts = tmp_path / "out", tmp_path / "parts"
    assert run(words) == 0
    for number in (1, 2, 3):
        assert run([*words, "-o", str(parts), "--shard", f"{number}/3"]) == 0
    lines = [(folder / FILE).read_bytes().splitlines() for folder in sorted(parts.iterdir())]
    assert sorted(chain(*lines)) == sorted((whole / FILE).read_bytes().splitlines())
    assert sum(bool(rows) for rows in lines) > 1
    capsys.readouterr()
    reports = []
    for folder in (whole, parts):
        assert run(["report", str(folder), "--json"]) == 0
        captured = capsys.readouterr()
        reports.append({**json.loads(captured.out), "runs": ""})
        assert not captured.err
    assert reports[0] == reports[1]


def test_a_report_warns_of_a_shard_that_is_not_done(words: list[str], tmp_path: Path, capsys: Captured) -> None:
    for number in (1, 2):
        run([*words, "--shard", f"{number}/3"])
    capsys.readouterr()
    run(["report", str(tmp_path / "out")])
    assert "warning: " in (said := capsys.readouterr().err)
    assert "shard 3 of 3 is not done: rows are missing" in said


def test_a_report_warns_of_shards_that_were_planned_differently(
    words: list[str], tmp_path: Path, capsys: Captured
) -> None:
    run([*words, "--shard", "1/2"])
    run([*words, "--shard", "2/2", "--seeds", "7"])
    capsys.readouterr()
    run(["report", str(tmp_path / "out")])
    assert "its shards were planned differently" in capsys.readouterr().err


def test_a_damaged_manifest_is_named(words: list[str], tmp_path: Path, capsys: Captured) -> None:
    run([*words, "--shard", "1/1"])
    (tmp_path / "out" / "shard-1-of-1" / MANIFEST).write_text("{")
    capsys.readouterr()
    assert run(["report", str(tmp_path / "out")]) == 2
    assert "is not what a shard writes; remove it and run the shard again" in capsys.readouterr().err


def test_a_shard_does_not_mix_with_a_run_or_with_other_shards(tmp_path: Path) -> None:
    (tmp_path / "shard-1-of-4").mkdir()
    assert Shard(2, 4).folder(tmp_path) == tmp_path / "shard-2-of-4"
    with pytest.raises(InputError, match="holds shards of 4"):
        Shard(1, 2).folder(tmp_path)
    (tmp_path / FILE).touch()
    with pytest.raises(InputError, match="holds a run that is not divided into shards"):
        Shard(1, 4).folder(tmp_path)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1.5/2", "１/２"])
def test_a_wrong_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"shard .*: give I/N, part I of N"):
        Shard.parsed(text)


@pytest.mark.parametrize("way", ["--shard", "--workers"])
def test_seeds_that_are_read_together_are_divided_and_their_rows_are_the_same(
    models: Models, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "2", "--seeds", "4", "--limit", "2", "--shots", "2", "-q")
    assert run(words) == 0
    whole, out = (tmp_path / "out" / FILE).read_bytes().splitlines(), tmp_path / "parts"
    if way == "--shard":
        for number in (1, 2):
            assert run([*words, "-o", str(out), "--shard", f"{number}/2"]) == 0
        parts = [(folder / FILE).read_bytes().splitlines() for folder in sorted(out.iterdir())]
        assert [len(rows) for rows in parts] == [len(whole) // 2] * 2
        lines = [*chain(*parts)]
    else:
        monkeypatch.setattr(local, "LocalExecutor", lambda *_: InlineExecutor(2))
        assert run([word for word in [*words, "-o", str(out), "--workers", "2", "-v"] if word != "-q"]) == 0
        assert "2 workers: 2 units done" in capsys.readouterr().err
        lines = (out / FILE).read_bytes().splitlines()
    assert sorted(lines) == sorted(whole)
