"""What commands print by default fits one screen of 80 columns; --details has the rest."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured, output

from deepthink_cli.cli.accuracy import AXIS, change, curve, probabilities
from deepthink_cli.cli.console import counted, report, table
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import Query
from deepthink_cli.evaluation.metrics import Answers, Changes, Evaluation, Probabilities
from deepthink_cli.scoring.prediction import Scores, prediction_of

LINES, COLUMNS = 30, 80
TEXTS = [{"text": f"A film of {n} hours that never ends.", "mood": "dull" if n % 2 else "warm"} for n in range(1, 25)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Path:
    """The current folder, with demonstrations, another file of rows, and a memory with nine iterations."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    write_rows(Path("demos.jsonl"), TEXTS[:16])
    write_rows(Path("rows.jsonl"), TEXTS[16:])
    assert run(["think", "demos.jsonl", "-T", "9", "--eta", "0.1", "--keep", "1,9", "-o", "mem.safetensors", "-q"]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.plugins
@pytest.mark.parametrize(
    "words",
    [
        pytest.param("inspect mem.safetensors", marks=pytest.mark.plugins),
        pytest.param("diff mem.safetensors mem.safetensors rows.jsonl --at 1,9", marks=pytest.mark.plugins),
        pytest.param("diff mem.safetensors", marks=pytest.mark.plugins),
        pytest.param("doctor", marks=pytest.mark.plugins),
        "select demos.jsonl --demos-by random --shots 4 -o chosen.jsonl",
        pytest.param(
            "select demos.jsonl -m pocket --demos-by entropy --shots 4 -o chosen.jsonl", marks=pytest.mark.plugins
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_screen_is_enough(words: str, capsys: Captured) -> None:
    assert run(words.split()) == 0
    out, err = capsys.readouterr()
    lines = [*out.splitlines(), *err.splitlines()]
    assert 3 <= len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.usefixtures("folder")
def test_a_run_and_its_report_fit_a_screen(capsys: Captured) -> None:
    Path("films.yaml").write_text("template: 'Film: {text}\\nMood: {mood}'\nlabels: [dull, warm]\nrows: rows.jsonl\n")
    for words in ("run --task films.yaml -T 2 --seeds 2 --shots 2 -o out", "report out"):
        assert run(words.split()) == 0
        out, err = capsys.readouterr()
        assert len(out.splitlines() + err.splitlines()) <= LINES
        assert [line for line in out.splitlines() + err.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.usefixtures("folder")
@pytest.mark.plugins
def test_inspect_shows_all_with_details(capsys: Captured) -> None:
    brief = output(capsys, "inspect", "mem.safetensors")
    whole = output(capsys, "inspect", "mem.safetensors", "--details")
    for found in ("kv_heads x L x head_dim", "transformers", "  16  A film of 16 hours", "\n2   ", "layer, T = 9"):
        assert found in whole
        assert found not in brief
    assert "... and 6 more" in brief
    assert "--details" in brief


REVIEWS = Path(__file__).parent.parent.parent / "examples" / "reviews"


def evaluation(pairs: dict[int, list[tuple[str, str]]], change: tuple[float, float] | None = None) -> Evaluation:
    """The evaluation of (true label, answer) at some T; `change` is the interval of the last log-probability's."""
    labels = list(dict.fromkeys(gold for gold, _ in pairs[1]))
    answers = {t: Answers(labels) for t in pairs}
    for t, each in answers.items():
        for gold, answer in pairs[t]:
            each.add(prediction_of(Query("", (answer,), answer), t, Scores((0.0,), (0.0,))))
            each.gold[-1] = gold
    last = max(pairs)
    middle = 0.0 if change is None else sum(change) / 2
    return Evaluation(
        n=len(pairs[1]),
        results={t: each.metrics() for t, each in answers.items()},
        majority=None,
        chance=0.5,
        confusion=answers[last].confusion(),
        probabilities={t: Probabilities(-0.5, (-0.6, -0.4), 0.1) for t in pairs},
        changes={t: Changes(3, 2, 1, middle, change) for t in pairs if t > 1},
    )


@pytest.mark.parametrize(("fixed", "broken", "verdict"), [(2, 1, "within"), (0, 9, "beyond")])
def test_fixed_and_broken_rows_are_tested_against_chance(fixed: int, broken: int, verdict: str) -> None:
    changes = {3: Changes(fixed + broken, fixed, broken, 0.0, None)}
    said = change(replace(evaluation({1: HALF, 3: HALF}), changes=changes))
    p = {2: "1", 0: "0.0039"}[fixed]  # 2 x 0.5**9 = 0.0039
    assert said == f"T = 1 to T = 3: +0.0 points, {fixed} fixed, {broken} broken: {verdict} chance (p = {p})"


def printed(capsys: Captured, *parts: object) -> list[str]:
    report(*parts)  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()


HALF = [("a", "a")] * 50 + [("b", "a")] * 50


def test_the_axis_of_accuracies_names_the_range_that_it_shows(capsys: Captured) -> None:
    better = [("a", "a")] * 51 + [("b", "a")] * 49
    header, first, last = printed(capsys, curve(evaluation({1: HALF, 2: better})))
    low, high = (int(part) / 100 for part in re.findall(r"(\d+)%", header))
    assert low <= 0.4038 < low + 0.05
    assert high - 0.05 < 0.6056 <= high
    drawn = [line[-AXIS:] for line in (first, last)]
    assert all(set(line) <= set(" ├─●┤") for line in drawn)
    # One row in a hundred moves the point by one cell at most, inside an interval of twenty points.
    assert abs(drawn[0].index("●") - drawn[1].index("●")) <= 1
    assert drawn[0].rindex("┤") - drawn[0].index("├") >= 0.75 * (AXIS - 1)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.01, 0.03), "T = 2 finds the true labels more likely than T = 1: the change exceeds noise"),
        ((-0.03, -0.01), "T = 2 finds the true labels less likely than T = 1: the change exceeds noise"),
        ((-0.01, 0.03), "T = 2 finds the true labels about as likely as T = 1: the change is within noise"),
    ],
)
def test_a_change_within_noise_is_said_to_be_none(
    interval: tuple[float, float], verdict: str, capsys: Captured
) -> None:
    lines = printed(capsys, *probabilities(evaluation({1: HALF, 2: HALF}, interval)))
    assert verdict in lines
    assert "ECE is the expected calibration error, over 10 bins of equal width" in lines


def test_the_output_fits_a_screen_and_its_details_80_columns(tmp_path: Path, capsys: Captured) -> None:
    memory = str(tmp_path / "m.safetensors")
    assert run(["think", str(REVIEWS / "demos.jsonl"), "-T", "3", "--keep", "all", "-q", "-o", memory]) == 0
    assert len(output(capsys, "eval", memory, REVIEWS / "labelled.jsonl").splitlines()) <= 24
    lines = output(capsys, "eval", memory, REVIEWS / "labelled.jsonl", "--details").splitlines()
    assert max(len(line.rstrip()) for line in lines[2:]) <= 80  # after the lines with the paths of both files
    assert "T = 1 to T = 3: no label changes" in lines
    assert "Share of each label:" in lines


def test_rows_with_candidates_of_their_own_have_probabilities_and_no_distribution(
    tmp_path: Path, capsys: Captured
) -> None:
    rows, memory = tmp_path / "rows.jsonl", str(tmp_path / "m.safetensors")
    lines = [
        {"question": f"{a} and {b}?", "candidates": [str(a + b), str(a * b)], "answer": str(a + b)}
        for a, b in [(1, 3), (3, 4), (5, 2)]
    ]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["think", str(rows), "-T", "2", "-q", "-o", memory]) == 0
    out = output(capsys, "eval", memory, rows, "--details")
    assert "T  log-prob  since T = 1" in out
    assert "Share of each label" not in out


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_table_wraps_in_a_terminal_and_is_one_line_a_row_in_a_pipe(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    row = ["name", "a long sentence of many words " * 5, "another one with words " * 5]
    shown, piped = Terminal(), io.StringIO()
    report(table("a", "b", "c", rows=[row], left=3), file=shown)
    report(table("a", "b", "c", rows=[row], left=3), file=piped)
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines())) <= width
    assert len(piped.getvalue().splitlines()) == 2


def test_a_numeric_label_is_no_second_count() -> None:
    assert [counted(3, label) for label in ("0", "World", "4 stars")] == ["3 '0'", "3 World", "3 '4 stars'"]
