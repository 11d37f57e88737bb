"""`deepthink demo`: the steps, the curves, and the sentences about them."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import pytest
from conftest import Soak

from deepthink_cli.cli import demo
from deepthink_cli.cli.demo import bias, choice, curves, outcome, saved, story
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import Query
from deepthink_cli.demo import ReadingCost, best_settings
from deepthink_cli.evaluation.evaluation import Evaluation, Evaluator
from deepthink_cli.scoring.prediction import Scores, prediction_of

Captured = pytest.CaptureFixture[str]
STEPS = ("Think:", "Inspect:", "Predict:", "deepthink think demos.jsonl -m gpt2")
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: Soak) -> Path:
    """The demo's data, in the suite only every fifth row that it shows."""
    folder = Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))
    for name in () if soak.long else ("reviews/sentences", "reviews/labelled", "news/articles"):
        file = folder / f"{name}.jsonl"
        file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[::5]), encoding="utf-8")
    monkeypatch.setattr(demo, "_examples", lambda: folder)
    return folder


def test_the_demo_tells_the_whole_story(data: Path, capsys: Captured, tmp_path: Path) -> None:
    assert run(["demo"]) == 0
    out, err = capsys.readouterr()
    labelled = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [set(row["scores"]) for row in labelled] == [{"negative", "positive"}] * 4
    sentences, articles, others = (
        count(data / name) for name in ("reviews/sentences", "news/articles", "reviews/labelled")
    )
    assert f"Film reviews: 16 demonstrations, {sentences} rows of sentences.jsonl." in out
    assert f"News articles: 8 demonstrations, {articles} rows of articles.jsonl." in out
    assert f"Chosen on {others} other rows (labelled.jsonl) by log p: " in out
    assert re.search(r"times as long, for the same scores \(largest difference \de-0[4-9] nats\)", out)
    for step in STEPS:
        assert step in err
    assert "no model named" not in err
    _check_against_commands(out, data / "news", tmp_path, capsys)


def count(path: Path) -> int:
    """The rows of a file."""
    return len(path.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines())


def _check_against_commands(out: str, data: Path, folder: Path, capsys: Captured) -> None:
    """The demo's second curve is what think and eval give."""
    memory, samples = str(folder / "mem.safetensors"), folder / "samples.jsonl"
    keep = ["--eta", "0.1", "-T", "12", "--keep", "1,2,4,8,12"]
    assert run(["think", str(data / "demos.jsonl"), *keep, "-o", memory]) == 0
    rows = str(data / "articles.jsonl")
    assert run(["eval", memory, rows, "--json", "-o", str(samples)]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    news = out[out.index("articles.jsonl") :].splitlines()[3:8]
    assert [line.split()[-2] for line in news] == [f"{each['accuracy']:.1%}" for each in results]
    labels: dict[int, list[str]] = {}
    for row in map(json.loads, samples.read_text(encoding="utf-8").splitlines()):
        labels.setdefault(row["iteration"], []).append(row["label"])
    changed = [sum(a != b for a, b in zip(labels[1], of_t, strict=True)) for of_t in labels.values()]
    assert [int(line.split()[-1]) for line in news] == changed
    assert changed[-1] > count(data / "articles") / 5


def test_with_a_data_directory_the_rows_are_those_of_both_tasks(tmp_path: Path, capsys: Captured) -> None:
    for folder, column, splits in (
        ("sst2", "sentence", ("train", "validation")),
        ("ag_news", "text", ("train", "test")),
    ):
        (tmp_path / folder).mkdir()
        for split in splits:
            rows = [{column: f"{split} film {n}", "label": n % 2} for n in range(24)]
            (tmp_path / folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["demo", "--dtype", "float32", "--offline", "--data-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "--dtype float32 --offline -T 5" in err
    assert "sst2: 8 demonstrations, 24 rows of its validation split." in out
    assert "agnews: 8 demonstrations, 24 rows of its test split." in out
    assert "other rows (training split) by log p" in out
    assert re.search(r"\nT = 1 answers '\w+' for \d+ of 24 rows, T = 12 for \d+; it is the true label of 12.\n", out)


def test_a_directory_without_the_tasks_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert run(["demo", "--data-dir", str(tmp_path)]) == 2
    assert "has none of the folders sst2, ag_news" in capsys.readouterr().err


def test_a_demo_of_a_model_that_does_not_exist_stops_before_it_starts(capsys: Captured) -> None:
    assert run(["demo", "-m", "./nowhere"]) == 2
    assert "no such model directory" in capsys.readouterr().err


RIGHT, WRONG = -0.1, -3.0  # log-probabilities of the true label, of which the first is above one half


def evaluation(*by_iteration: list[float]) -> Evaluation:
    """Rows whose true label, a of a and b, has these log-probabilities at T = 1, 2, ..."""
    evaluator = Evaluator(range(1, len(by_iteration) + 1), ("a", "b"))
    for row in zip(*by_iteration, strict=True):
        for iteration, value in enumerate(row, start=1):
            sums = (value, math.log(1 - math.exp(value)))
            evaluator.add(prediction_of(Query("x", ("a", "b"), "a"), iteration, Scores(sums, sums)))
    return evaluator.result()


def test_the_story_is_what_the_log_probabilities_say() -> None:
    assert "log p is highest at T = 2, the last one: -0.600 to -0.300" in story(0.1, evaluation([-0.6], [-0.3]))
    assert "no T has a higher log p than T = 1" in story(0.1, evaluation([-0.3], [-0.6]))
    both = story(0.1, evaluation([-0.6], [-0.3], [-0.5]))
    assert "rises from -0.600 to -0.300 at T = 2, and is -0.500 at T = 3: more readings do harm" in both
    assert "do harm" not in story(0.1, evaluation([-0.6], [-0.3], [-0.305]))


def test_the_outcome_is_a_gain_a_loss_or_chance() -> None:
    def changes(fixed: int, broken: int) -> str:
        before = [WRONG] * fixed + [RIGHT] * (100 - fixed)
        after = [RIGHT] * (100 - broken) + [WRONG] * broken
        return outcome(evaluation(before, after), 2)

    expected = "T = 2 changes 14 of 100 labels: fixes 12, breaks 2, +10.0 points; exact McNemar p = 0.013: a gain."
    assert changes(12, 2) == expected
    assert changes(2, 12).endswith("a loss.")
    assert changes(3, 2).endswith("no more than chance can explain.")


def test_settings_are_chosen_by_log_probability_the_smallest_of_equals() -> None:
    both = evaluation([-0.6], [-0.3])
    assert best_settings({0.1: both, 0.01: both}) == (0.01, 2)
    assert "T = 1, plain in-context learning" in choice(0.1, 1, both, "8 rows")
    assert choice(0.1, 2, both, "8 rows").startswith("Chosen on 8 rows by log p: eta = 0.1, T = 2. Here T = 2 changes")


def test_the_curves_of_all_etas_stand_side_by_side() -> None:
    table = curves({0.01: evaluation([-0.6], [-0.3]), 0.1: evaluation([RIGHT], [WRONG])})
    assert [list(column.cells) for column in table.columns[1:]] == [
        *(["-0.600", "-0.300"], ["100.0%", "100.0%"], ["0", "0"]),
        *(["-0.100", "-3.000"], ["100.0%", "0.0%"], ["0", "1"]),
    ]


def test_a_bias_is_told_in_counts() -> None:
    half = evaluation([RIGHT, WRONG] * 5, [RIGHT] * 10)
    assert bias(half) == "T = 1 answers 'a' for 5 of 10 rows, T = 2 for 10; it is the true label of 10."


def test_the_cost_of_reading_again_is_told_per_input() -> None:
    cost = ReadingCost(tokens=300, reading=0.05, inputs=200, scoring=1.0, again=20, rereading=2.0, difference=2e-6)
    assert cost.ratio == pytest.approx(20)
    once, again = saved(cost)
    assert once == "One reading of 300 tokens: 50.0 ms. After it, 200 inputs: 1.00 s, 5.0 ms each."
    assert "20 inputs: 2.00 s, 100.0 ms each: 20.0 times as long" in again
