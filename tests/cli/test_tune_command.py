"""`deepthink tune` as its user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_rows
from helpers.said import Captured, output

from deepthink_cli.cli.main import run
from deepthink_cli.tuning.tune import TuneReport

pytestmark = pytest.mark.plugins  # techniques that are named

KINDS = {
    "positive": ("warm", "wise", "tender", "lively", "kind"),
    "negative": ("dull", "flat", "cold", "stale", "long"),
}
ROWS = [{"review": f"a {word} film", "sentiment": label} for label, words in KINDS.items() for word in words]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", list(ROWS))


@pytest.fixture
def words(models: Models, rows: Path) -> list[str]:
    return ["tune", str(rows), "-m", str(models("llama")), "-T", "3", "--folds", "3", "--technique", "composed"]


def test_the_table_has_plain_in_context_learning_first_and_a_verdict_last(words: list[str], capsys: Captured) -> None:
    assert run([*words, "--eta", "0.1", "--calibrate", "domain,contextual", "--details"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert "10 rows, labels negative, positive" in lines[0]
    assert lines[3].startswith("plain in-context learning  ")
    # plain, and the best of each technique at T = 1 and at T > 1; two classifiers
    assert len(lines[3 : lines.index("", 3)]) == 1 + 2 * 2 + 2
    assert lines[9].startswith("logistic regression on mean hidden states  ")
    assert re.fullmatch(
        r"plain in-context learning by calibration: none \d+\.\d%, contextual \d+\.\d%, domain \d+\.\d%", lines[11]
    )
    assert (
        "verdict: plain in-context learning (T = 1) is kept: these 10 rows show nothing better at p < 0.025"
    ) in lines
    assert "deepthink predict mem.safetensors INPUTS" in err


def test_the_screen_has_the_verdict_what_to_expect_and_no_table(words: list[str], capsys: Captured) -> None:
    verdict, expected, *others = output(capsys, *words, "--calibrate", "none").splitlines()
    assert verdict.startswith("verdict: plain in-context learning (T = 1) is kept: these 10 rows")
    assert re.fullmatch(r"expect on rows like these: \d+\.\d% \(\d+\.\d% to \d+\.\d%\)", expected)
    assert len(others) <= 3
    assert others[-1].endswith("--details: the best of each kind")


def test_the_report_as_json_has_every_setting_and_the_nested_estimate(words: list[str], capsys: Captured) -> None:
    assert run([*words, "--calibrate", "none", "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    values: dict[str, Any] = json.loads(out)
    assert not err
    assert len(values["settings"]) == 2 * (1 + 2 * 2)  # two techniques; T = 1, and T = 2 and 3 with two etas
    assert [each["technique"] for each in values["settings"][:2]] == ["deep-thinking", "composed"]
    assert values["not_tried"] == []
    assert values["settings"][0]["eta"] is None
    nested = values["nested"]
    assert nested["difference"] == pytest.approx(nested["accuracy"] - nested["plain"])
    assert nested["difference_ci95"][0] <= nested["difference"] <= nested["difference_ci95"][1]
    assert len(nested["chosen"]) == values["folds"] == 3
    assert values["choice"] == {key: values["settings"][0][key] for key in values["choice"]}


def test_the_memory_says_how_it_was_tuned(
    words: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mem.safetensors"
    assert run([*words, "--calibrate", "none", "-o", str(path)]) == 0
    assert f"next: deepthink predict {path} INPUTS\n" in capsys.readouterr().err
    run(["inspect", str(path)])
    assert "chosen from 10 settings by 3-fold cross-validation: calibration none, " in capsys.readouterr().out
    corrected = property(lambda self: [each.calibration for each in self.settings].index("domain"))
    monkeypatch.setattr(TuneReport, "kept", corrected)
    monkeypatch.setattr(TuneReport, "chosen_by_rows", True)
    assert run([*words, "--calibrate", "domain", "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "verdict: plain in-context learning (T = 1) with calibration domain is better than without it by " in out
    assert f"next: deepthink predict {path} INPUTS\n" in err
    again = tmp_path / "again.safetensors"
    assert run(["calibrate", str(path), "--calibrate", "domain", "-q", "-o", str(again)]) == 0
    assert again.read_bytes() == path.read_bytes()  # the correction is stored


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "rows.jsonl: 4 different rows; give 6 at least"),
        (["--technique", "ensemble-3"], "--technique ensemble-3: use deep-thinking"),
        (["--folds", "x"], "--folds x: a number of folds, 3 or more, or loo for as many as rows"),
        (["--calibrate", "batch,more"], "--calibrate more: use none, contextual"),
        (["--labels", "positive,negative,mixed"], "label 'mixed' has too few different rows, 0 of 2"),
        (["--shots", "0"], "--shots 0: a number of demonstrations, 1 or more"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    more: list[str], message: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "rows.jsonl", list(ROWS[3:7]))
    assert run(["tune", "rows.jsonl", *more]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("deepthink: ") and message in line for line in lines), lines


def test_the_verdict_says_what_the_calibration_alone_gives(
    words: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = property(lambda self: max(n for n, each in enumerate(self.settings) if each.calibration == "domain"))
    monkeypatch.setattr(TuneReport, "kept", last)
    out = output(capsys, *words, "--calibrate", "none,domain", "-q", "--details")
    (alone,) = re.findall(r"plain in-context learning by calibration: none \d+\.\d%, domain (\d+\.\d%)", out)
    assert f"plain in-context learning with calibration domain: {alone}, against " in out
