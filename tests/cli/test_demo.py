"""`deepthink demo`: both stages, what thinking changes, and what a memory saves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.said import Captured

from deepthink_cli.cli.main import run

REVIEWS = Path(__file__).resolve().parent.parent.parent / "examples" / "reviews"


def test_the_demo_tells_the_whole_story_in_one_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    out, err = capsys.readouterr()
    assert len((out + err).splitlines()) <= 60
    labelled = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [set(row["scores"]) for row in labelled] == [{"negative", "positive"}] * 4
    assert f"/reviews/sentences.jsonl: {len((REVIEWS / 'sentences.jsonl').read_text().splitlines())} inputs" in out
    assert re.findall(r"^(\d+) +\d+\.\d%", out, re.MULTILINE) == ["1", "2", "4", "8", "12"]
    assert re.search(r"times as long, for the same scores \(largest difference \de-0[4-9] nats\)", out)
    for step in ("Think:", "Predict:", "Evaluate:", "deepthink think demos.jsonl -m gpt2"):
        assert step in err
    assert "no model named" not in err
    assert not list(tmp_path.iterdir())


def test_a_step_that_fails_ends_the_demo(tmp_path: Path, capsys: Captured) -> None:
    assert run(["demo", "-m", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, "no config.json in this directory" in err, "Predict:" in err) == ("", True, False)
