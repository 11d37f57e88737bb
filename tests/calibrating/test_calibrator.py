"""Calibrations through a model, against raw scores of separate calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import pytest
from conftest import REVIEWS, TEMPLATE

from deepthink_cli import DemonstrationSet, Example, Memory, Method, Query, score, think, tokenize_demonstrations
from deepthink_cli.calibrating.basis import basis_texts
from deepthink_cli.calibrating.calibrator import Calibrator
from deepthink_cli.engine.base import Engine
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.prediction import Prediction, predict
from deepthink_cli.provenance import TokenizedDemonstrations

ROWS = ["a kind film", "flat and stale", "loud", "a wise and warm play", "not bad at all"]
LABELS = ("positive", "negative")


@pytest.fixture(scope="module")
def demonstrations(llama: Engine) -> TokenizedDemonstrations:
    """The four reviews, tokenised."""
    solved = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)
    return tokenize_demonstrations(llama.tokenizer, solved)


@pytest.fixture(scope="module")
def memories(llama: Engine, demonstrations: TokenizedDemonstrations) -> list[Memory]:
    """Two iterations."""
    return list(think(llama, demonstrations, Method(2)))


def calibrated(
    engine: Engine, memories: Sequence[Memory], names: Sequence[str], rows: Sequence[str | Query] = ROWS
) -> list[Prediction]:
    """Predictions of all rows, corrected in one call."""
    provenance = memories[0].provenance
    assert provenance is not None
    calibrator = Calibrator(engine, memories, provenance.demonstrations, names)
    return calibrator(list(predict(engine, memories, rows)))


def shares(
    engine: Engine, memory: Memory, texts: Sequence[str], candidates: tuple[str, ...] = LABELS
) -> list[list[float]]:
    """The probabilities of the labels among themselves after each text, by separate calls of `score`."""
    assert memory.provenance is not None
    rows = []
    for text in texts:
        (query,) = tokenize_queries(engine.tokenizer, memory.provenance.demonstrations, [Query(text, candidates)])
        (scores,) = score(engine, memory, [query])
        weights = [math.exp(value - max(scores.sums)) for value in scores.sums]
        rows.append([weight / sum(weights) for weight in weights])
    return rows


def divided(probabilities: Sequence[float], bias: Sequence[float]) -> list[float]:
    """Probabilities divided by a bias, normalised."""
    weights = [p / b for p, b in zip(probabilities, bias, strict=True)]
    return [weight / sum(weights) for weight in weights]


def check(predictions: Sequence[Prediction], name: str, expected: Sequence[Sequence[float]]) -> None:
    """That the corrected predictions have these probabilities."""
    for prediction, probabilities in zip(predictions, expected, strict=True):
        after = prediction.calibrated[name].prediction
        best = max(range(len(probabilities)), key=lambda place: probabilities[place])
        assert after.label == prediction.query.candidates[best]
        assert after.probability == pytest.approx(probabilities[best], rel=1e-4)


@pytest.mark.parametrize("iteration", [1, 2])
@pytest.mark.parametrize("name", ["contextual", "domain", "batch"])
def test_the_mean_of_separate_scores_is_divided_out(
    name: str, iteration: int, llama: Engine, memories: list[Memory], demonstrations: TokenizedDemonstrations
) -> None:
    texts = {"contextual": ["N/A", "[MASK]", ""], "batch": ROWS}.get(name) or basis_texts("domain", demonstrations)
    memory = memories[iteration - 1]
    bias = [fmean(column) for column in zip(*shares(llama, memory, list(map(str, texts))), strict=True)]
    after = calibrated(llama, [memory], [name])
    check(after, name, [divided(row, bias) for row in shares(llama, memory, ROWS)])
    correction = after[0].calibrated[name]
    assert list(map(math.exp, correction.bias.values())) == pytest.approx(bias, rel=1e-4)
    assert (correction.inputs, correction.counted) == (len(texts), "rows" if name == "batch" else "texts")
