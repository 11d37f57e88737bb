"""Runs that cross T and eta with update rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Models
from helpers.said import Captured, output
from helpers.tiny import run_words

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import read_results


@pytest.fixture
def words(models: Models, tmp_path: Path) -> Callable[..., list[str]]:
    command = run_words(tmp_path, models("llama"), "-T", "2", "--quiet", "--eta", "0.5")
    return lambda *more: [*command, *more]


def test_every_rule_has_its_own_rows_and_they_share_the_first_reading(
    words: Callable[..., list[str]], tmp_path: Path
) -> None:
    rules = "gate,values-only,layer-ramp:last=0,first=1,inverse-time"
    assert run(words("--update", rules, "--eta", "0.1,0.5", "--seeds", "2")) == 0
    rows = read_results(tmp_path / "out")
    assert len({row.key for row in rows}) == len(rows) == 4 * 2 * 2 * 2
    assert [*dict.fromkeys(row.setting.update for row in rows)] == [
        None,
        "values-only",
        "layer-ramp:first=1,last=0",
        "inverse-time",
    ]
    assert len({row.correct for row in rows if row.setting.iteration == 1 and row.setting.seed == 0}) == 1
    assert {row.drift[0] for row in rows if row.drift and row.setting.update == "values-only"} == {0.0}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("keyes-only", "--update keyes-only: update rule 'keyes-only' is unknown here; the known ones are gate"),
        ("gate,cosine:readings=0", "update rule 'cosine': readings: must be 2 or more"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(
    words: Callable[..., list[str]], capsys: Captured, rule: str, message: str
) -> None:
    assert run(words("--update", rule)) == 2
    assert message in capsys.readouterr().err


def test_a_memory_says_by_which_rule_it_was_made(models: Models, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    memory = str(tmp_path / "mem.safetensors")
    rule = ["--update", "cosine:readings=3", "--eta", "0.5"]
    assert run(["think", str(demos), "-m", str(models("llama")), "-T", "2", *rule, "-o", memory]) == 0
    assert "cosine, eta 0.5, momentum 0.0, readings 3" in output(capsys, "inspect", memory)
