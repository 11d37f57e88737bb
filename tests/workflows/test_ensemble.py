"""Predictions by the mean log-probability over several memories."""

from __future__ import annotations

import math

import pytest

from deepthink_cli import Prediction, Query
from deepthink_cli.prediction import mean_predictions

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
