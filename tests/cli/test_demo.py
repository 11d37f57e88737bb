"""`deepthink demo`: the steps and the sentence about what thinking changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from deepthink_cli.cli.demo import _outcome
from deepthink_cli.cli.main import run

Captured = pytest.CaptureFixture[str]
STEPS = ("Think:", "Inspect:", "Predict:", "Eval:", "deepthink think demos.jsonl -m gpt2")


def test_the_demo_tells_the_whole_story(capsys: Captured) -> None:
    assert run(["demo"]) == 0
    out, err = capsys.readouterr()
    labelled = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [set(row["scores"]) for row in labelled] == [{"negative", "positive"}] * 4
    assert "64 inputs" in out
    assert "200 inputs" in out
    assert "What thinking changed, on 200 rows of sentences.jsonl: T = " in out
    assert "was chosen on the 64 rows of labelled.jsonl" in out
    assert "That is one choice of demonstrations" in out
    for step in STEPS:
        assert step in err


def test_another_model_reads_the_rows_of_sst2(models: Callable[[str], Path], tmp_path: Path, capsys: Captured) -> None:
    tiny = str(models("llama"))
    folder = tmp_path / "sst2"
    folder.mkdir()
    for split in ("train", "validation"):
        rows = [{"sentence": f"{split} film {n}", "label": n % 2} for n in range(40)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["demo", "-m", tiny, "--dtype", "float32", "--offline", "--data-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert f"--model {tiny} --dtype float32 --offline -T 8" in err
    assert "40 rows of SST-2: T = 8 is fixed in this demo; eta = 0.1 is" in out
    assert re.search(r"\nT = 1 answers '\w+' for \d+ of 40 rows, T = 8 for \d+; it is the true label of 20.\n", out)


def test_a_demo_of_a_model_that_does_not_exist_stops_before_it_starts(capsys: Captured) -> None:
    assert run(["demo", "-m", "./nowhere"]) == 2
    assert "no such model directory" in capsys.readouterr().err


def test_the_outcome_is_a_gain_a_loss_or_chance() -> None:
    def outcome(corrected: int, spoilt: int, chosen: int = 2) -> list[str]:
        first = [False] * corrected + [True] * (100 - corrected)
        second = [True] * (100 - spoilt) + [False] * spoilt
        return _outcome({1: first, 2: second}, chosen, "reason", "rows")[1:]

    assert outcome(12, 2) == [
        "T = 1: 88.0%; T = 2: 98.0%, +10.0 points: corrected 12, spoilt 2; exact McNemar p = 0.013: a gain."
    ]
    assert outcome(2, 12)[-1].endswith("a loss.")
    assert outcome(3, 2)[-1].endswith("no more than chance can explain.")
    kept, compared = outcome(2, 12, chosen=1)
    assert kept == "So plain in-context learning is kept: 98.0%."
    assert compared.startswith("T = 1: 98.0%; with T = 2: 88.0%, -10.0 points")
