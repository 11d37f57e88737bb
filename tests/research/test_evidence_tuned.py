"""What `tune` chose, as a table and a sentence, and the commands that a line of it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research.evidence import tuned
from research.evidence.details import tuned_sentence, tuned_table

PLAIN = {"technique": "deep-thinking", "iterations": 1, "eta": None, "calibration": "none"}


def line(
    task: str, kept: bool, not_tried: tuple[str, ...] = (), ends: tuple[float, float] = (0.7, 0.8), **choice: object
) -> dict[str, Any]:
    """A task on which 60 of 100 rows are right at T = 1, and 75 by what was chosen."""
    return {
        "task": task,
        "budget": "3m",
        "not_tried": not_tried,
        "choice": {**PLAIN, **choice},
        "difference_beyond_noise": kept,
        "nested": {"plain": 0.6, "accuracy": 0.75, "ci95": ends, "difference": 0.15, "p": 0.0001 if kept else 0.2},
        "rivals": [{"name": "TF-IDF, no model", "accuracy": 0.5}, {"name": "mean states", "accuracy": 0.7}],
        "test": {"uncorrected": 0.55, "accuracy": 0.72},
    }


LINES = [
    line("sst2", True, calibration="domain"),
    line("trec", True, iterations=5, eta=0.1, technique="composed"),
    line("mr", False, ("deep-thinking, T = 2 to 5",), ends=(0.73, 0.77)),
]


def test_the_table_has_the_choice_the_estimate_and_the_test_rows() -> None:
    rows = tuned_table(LINES).splitlines()
    assert rows[2] == "| SST-2 | T = 1, `domain` | yes | 60.0 | 75.0 [70.0 to 80.0] (+15.0) | 55.0 | 72.0 |"
    assert rows[3].startswith("| TREC | `composed`, T = 5, eta 0.1 | yes |")
    assert rows[4].startswith("| MR | T = 1 | no | 60.0 | 75.0 [73.0 to 77.0] (+15.0) |")


def test_the_sentence_says_how_often_a_setting_is_preferred_and_where_its_estimate_missed() -> None:
    said = tuned_sentence(LINES)
    assert "beyond noise, on 2 of 3 tasks, and more than one reading on 1." in said
    assert "SST-2 72.0, TREC 72.0, MR 72.0 % on test rows. On MR that is outside" in said


def test_a_task_is_tuned_on_its_own_template_and_evaluated_with_and_without_the_correction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = []

    def program(*words: str) -> dict[str, Any]:
        commands.append(words)
        if words[0] == "tune":
            nested = {"accuracy": 0.7, "chosen": ["one of each fold"]}
            choice = {**PLAIN, "calibration": "domain"}
            told = {"rows": 150, "best": choice, "rivals": [], "not_tried": [], "seconds": 1.23}
            return {**told, "choice": choice, "nested": nested, "difference_beyond_noise": True}
        last = {"accuracy": 0.5, "calibrated": {"stored": {"accuracy": 0.6}}}
        return {"results": [last], "n": 300} if words[0] == "eval" else {}

    monkeypatch.setattr(tuned, "_program", program)
    found = tuned.measured("trec", "model.gguf", tmp_path, "5m")
    assert [words[0] for words in commands] == ["select", "tune", "eval"]
    assert "Question: {text}\nType: {label}" in commands[1]
    assert "stored,none" in commands[2]
    assert found["test"] == {"n": 300, "accuracy": 0.6, "uncorrected": 0.5}
    assert "chosen" not in found["nested"]
    json.dumps(found)
