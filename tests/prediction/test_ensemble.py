"""Predictions by the mean log-probability over several memories."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import readings_of
from helpers.said import Captured

from deepthink_cli import DemonstrationSet, Engine, Example, Prediction, Query, evaluate, predict
from deepthink_cli.cli.main import run
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.pipeline import predictions
from deepthink_cli.scoring.prediction import mean_predictions

QUERY = Query("a film", ("good", "very bad", "bad"), "bad")


def prediction(*sums: float, iteration: int = 1) -> Prediction:
    """A prediction with these scores; the second candidate has two tokens."""
    scores = dict(zip(QUERY.candidates, sums, strict=True))
    best = max(scores, key=lambda name: scores[name])
    means = {name: value / (2 if name == "very bad" else 1) for name, value in scores.items()}
    return Prediction(QUERY, iteration, best, 0.5, scores, best, tied=False, means=means)


def test_the_label_has_the_greatest_mean_log_probability() -> None:
    first, second = prediction(-1.0, -2.0, -3.0), prediction(-5.0, -2.5, -3.0)
    mean = mean_predictions([first, second])
    assert mean.scores == {"good": -3.0, "very bad": -2.25, "bad": -3.0}
    assert (mean.label, mean.label_mean_per_token, mean.tied) == ("very bad", "very bad", False)
    assert mean.probability == pytest.approx(math.exp(-2.25) / (math.exp(-2.25) + 2 * math.exp(-3.0)))


def test_a_mean_per_token_can_name_another_label() -> None:
    mean = mean_predictions([prediction(-1.9, -3.0, -4.0), prediction(-2.1, -3.4, -4.0)])
    assert (mean.label, mean.label_mean_per_token) == ("good", "very bad")


def test_neither_the_order_of_the_memories_nor_a_constant_of_one_changes_the_answer() -> None:
    members = [prediction(-0.1, -0.7, -0.3), prediction(-0.2, -0.11, -0.6), prediction(-1.3, -0.4, -0.9)]
    assert mean_predictions(members) == mean_predictions(members[::-1])
    shifted = prediction(*(value - 7 for value in members[2].scores.values()))
    moved = mean_predictions([*members[:2], shifted])
    assert moved.label == mean_predictions(members).label
    assert moved.probability == pytest.approx(mean_predictions(members).probability)


def test_the_mean_of_a_single_prediction_is_itself() -> None:
    single = prediction(-1.0, -2.0, -3.0, iteration=4)
    mean = mean_predictions([single])
    assert (mean.scores, mean.means, mean.label, mean.iteration) == (single.scores, single.means, "good", 4)


def thought(rows: Path, output: Path, *more: str) -> Path:
    """A memory of these rows by the built-in model, with iterations 1 to 3."""
    assert run(["think", str(rows), "-T", "3", "--keep", "all", "-q", "-o", str(output), *more]) == 0
    return output


@pytest.fixture
def pair(tmp_path: Path, demos: Path) -> tuple[Path, Path]:
    """Memories of the reviews in two orders, whose labels appear in two orders too."""
    backward = tmp_path / "backward.jsonl"
    backward.write_text("".join(f"{line}\n" for line in demos.read_text().splitlines()[::-1]))
    return thought(demos, tmp_path / "first.safetensors"), thought(backward, tmp_path / "second.safetensors")


def printed(capsys: Captured, *words: str) -> list[dict[str, Any]]:
    """The JSON lines that a command prints."""
    capsys.readouterr()
    assert run([*words, "-q"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("iteration", ["last", "all"])
def test_an_ensemble_predicts_by_the_mean_scores_of_its_memories(
    pair: tuple[Path, Path], iteration: str, demos: Path, capsys: Captured
) -> None:
    first, second = map(str, pair)
    words = [str(demos), "--at", iteration]
    alone = [printed(capsys, "predict", file, *words) for file in (first, second)]
    together = printed(capsys, "predict", first, *words, "--ensemble", second)
    assert len(together) == (12 if iteration == "all" else 4)
    for row, left, right in zip(together, *alone, strict=True):
        mean = {label: (left["scores"][label] + right["scores"][label]) / 2 for label in left["scores"]}
        assert row["scores"] == pytest.approx(mean, abs=1e-4)
        assert row.get("iteration") == left.get("iteration")


def test_an_evaluation_names_the_memories_of_its_ensemble(
    pair: tuple[Path, Path], demos: Path, capsys: Captured
) -> None:
    first, second = map(str, pair)
    (report,) = printed(capsys, "eval", first, str(demos), "--json", "--ensemble", second, "--at", "3")
    assert report["ensemble"] == [second]
    assert [result["iteration"] for result in report["results"]] == [1, 3]
    result = evaluate(Scorer.open(first, iteration=3, ensemble=[second]), demos)
    assert [metrics.accuracy for metrics in result.evaluation.results.values()] == [
        result["accuracy"] for result in report["results"]
    ]
    assert run(["eval", first, str(demos), "--ensemble", second, "-q"]) == 0
    assert f"mean log-probability with {second}" in capsys.readouterr().out
    (single,) = printed(capsys, "eval", first, str(demos), "--json")
    assert "ensemble" not in single


def test_memories_that_do_not_fit_together_are_all_refused_by_name(
    pair: tuple[Path, Path], tmp_path: Path, demos: Path, capsys: Captured
) -> None:
    first, second = pair
    shorter = thought(demos, tmp_path / "shorter.safetensors", "-T", "2")
    other = thought(demos, tmp_path / "other.safetensors", "--template", "{review} is {sentiment}")
    labelled = thought(demos, tmp_path / "labelled.safetensors", "--labels", "positive,negative,neutral")
    capsys.readouterr()
    ensemble = [word for file in (second, first, shorter, other, labelled) for word in ("--ensemble", str(file))]
    assert run(["predict", str(first), str(demos), *ensemble]) == 2
    same, iterations, template, labels = capsys.readouterr().err.splitlines()
    assert f"--ensemble {first}: the same memory as another one" in same
    assert f"--ensemble {shorter}: its iterations are 2, those of {first} 3; choose one" in iterations
    assert f"--ensemble {other}: differs from {first} in its template" in template
    assert f"--ensemble {labelled}: differs from {first} in its labels" in labels


def test_a_member_of_the_ensemble_is_not_overwritten(pair: tuple[Path, Path], demos: Path, capsys: Captured) -> None:
    first, second = map(str, pair)
    assert run(["predict", first, str(demos), "--ensemble", second, "-o", second]) == 2
    assert "which this command reads" in capsys.readouterr().err


def test_members_may_have_demonstrations_of_different_lengths(llama: Engine) -> None:
    short = DemonstrationSet.of([Example("a", "no"), Example("b", "yes")], "{text}: {label}")
    long = DemonstrationSet.of([Example("a b c d e f", "yes"), Example("b c d e f g", "no")], "{text}: {label}")
    first, second = (next(readings_of(llama, each)) for each in (short, long))
    ((together,),) = predictions(llama, [[first], [second]], [Query("c", ("no", "yes"))])
    left, right = (next(predict(llama, memory, ["c"])).scores for memory in (first, second))
    assert together.scores == pytest.approx({label: (left[label] + right[label]) / 2 for label in left}, abs=1e-4)
