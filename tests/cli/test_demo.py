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
from deepthink_cli.cli.demo import curves, outcome
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import Query
from deepthink_cli.evaluation.by_iteration import Evaluation, Evaluator
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
    sentences, articles = (count(data / name) for name in ("reviews/sentences", "news/articles"))
    assert f"reviews: 16 demonstrations, {sentences} rows of sentences.jsonl." in out
    assert f"news: 8 demonstrations, {articles} rows of articles.jsonl." in out
    assert re.search(rf"eta = 0\.1: T = 12 changes \d+ of {articles} labels: ", out)
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


RIGHT, WRONG = -0.1, -3.0  # log-probabilities of the true label, of which the first is above one half


def evaluation(*by_iteration: list[float]) -> Evaluation:
    """Rows whose true label, a of a and b, has these log-probabilities at T = 1, 2, ..."""
    evaluator = Evaluator(range(1, len(by_iteration) + 1), ("a", "b"))
    for row in zip(*by_iteration, strict=True):
        for iteration, value in enumerate(row, start=1):
            sums = (value, math.log(1 - math.exp(value)))
            evaluator.add(prediction_of(Query("x", ("a", "b"), "a"), iteration, Scores(sums, sums)))
    return evaluator.result()


def test_the_outcome_is_a_gain_a_loss_or_chance() -> None:
    def changes(fixed: int, broken: int) -> str:
        before = [WRONG] * fixed + [RIGHT] * (100 - fixed)
        after = [RIGHT] * (100 - broken) + [WRONG] * broken
        return outcome(evaluation(before, after), 2)

    expected = "T = 2 changes 14 of 100 labels: fixes 12, breaks 2, +10.0 points; exact McNemar p = 0.013: a gain."
    assert changes(12, 2) == expected
    assert changes(2, 12).endswith("a loss.")
    assert changes(3, 2).endswith("no more than chance can explain.")


def test_the_curves_of_all_etas_stand_side_by_side() -> None:
    table = curves({0.01: evaluation([-0.6], [-0.3]), 0.1: evaluation([RIGHT], [WRONG])})
    assert [list(column.cells) for column in table.columns[1:]] == [
        *(["-0.600", "-0.300"], ["100.0%", "100.0%"], ["0", "0"]),
        *(["-0.100", "-3.000"], ["100.0%", "0.0%"], ["0", "1"]),
    ]
