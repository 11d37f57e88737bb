"""Scores as tables store them: rounded, with the same answers, and small enough to be committed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.scoring.softmax import log_softmax
from research.encoding import BIAS, CALIBRATED, LABEL, PROBABILITY, SCORES, UNIT, alike, decoded, encoded
from research.evidence.measures import Floats
from research.packing import TABLES

LABELS = ("bad", "fair", "good")
LIMIT = 12_000_000  # bytes of all tables


def samples(scores: Floats, bias: Floats | None = None) -> pa.Table:
    """The rows of a file of samples, as `deepthink run` writes them."""
    answers = log_softmax(scores) if bias is None else log_softmax(scores) - bias
    best = answers.argmax(axis=1)
    columns = {
        "where": [f"rows.jsonl:{number}" for number in range(len(scores))],
        "gold": ["good"] * len(scores),
        LABEL: [LABELS[place] for place in best],
        PROBABILITY: np.exp(log_softmax(answers))[np.arange(len(best)), best],
        "candidates": [LABELS] * len(scores),
        SCORES: scores.tolist(),
    }
    if bias is not None:
        columns |= {CALIBRATED: answers.tolist(), BIAS: bias.tolist()}
    return pa.table(columns)


def lists(rows: pa.Table, name: str) -> Floats:
    return np.array(rows[name].to_pylist())


def test_scores_come_back_as_log_probabilities_over_the_candidates() -> None:
    scores = np.random.default_rng(0).normal(size=(50, 3)) * 5 - 7
    rows = samples(scores)
    stored = encoded(rows)
    back = decoded(stored, {})
    assert LABEL not in stored.column_names
    assert alike(rows, back)
    assert np.abs(lists(back, SCORES) - log_softmax(scores)).max() <= UNIT
    np.testing.assert_allclose(back[PROBABILITY].to_numpy(), rows[PROBABILITY].to_numpy(), atol=UNIT)
    assert encoded(back).equals(stored)


def test_nearly_equal_scores_give_the_same_answer_and_equal_ones_stay_equal() -> None:
    scores = np.array([[-2.0, -1.0, -1.0 + UNIT / 9], [-1.0, -1.0, -3.0]])
    back = decoded(encoded(samples(scores)), {})
    assert back[LABEL].to_pylist() == ["good", "bad"]
    assert lists(back, SCORES)[1, 0] == lists(back, SCORES)[1, 1]


def test_corrected_scores_give_the_same_answers() -> None:
    draw = np.random.default_rng(1)
    scores = draw.normal(size=(200, 3))
    bias = np.tile(draw.normal(size=3), (200, 1))
    places = np.arange(200)
    first, second = draw.permuted(np.tile(np.arange(3), (200, 1)), axis=1)[:, :2].T
    scores[places, second] = scores[places, first] - bias[places, first] + bias[places, second] + UNIT / 50
    rows = samples(scores, bias)
    stored = encoded(rows)
    assert CALIBRATED not in stored.column_names
    back = decoded(stored, {})
    assert alike(rows, back)
    assert np.abs(lists(back, CALIBRATED) - lists(rows, CALIBRATED)).max() < 3 * UNIT
    assert encoded(back).equals(stored)


def test_batch_calibration_gives_the_same_answers_before_and_after() -> None:
    scores, batch = np.random.default_rng(2).normal(size=(200, 3)) * 5 * UNIT, CALIBRATIONS["batch"]
    back = lists(decoded(encoded(samples(scores)), {}), SCORES)
    before, rounded, stored = (
        batch.fitted(each).scores(None, each).argmax(axis=1) for each in (scores, np.rint(scores / UNIT) * UNIT, back)
    )
    assert (rounded != before).any()
    assert (stored == before).all()


def test_a_candidate_without_a_probability_has_none() -> None:
    back = decoded(encoded(samples(np.array([[-1.0, -np.inf, -2.0], [-1.0, -3.0, -2.0]]))), {})
    assert np.isneginf(lists(back, SCORES)).tolist() == [[False, True, False], [False] * 3]


def test_all_tables_together_have_less_than_12_megabytes() -> None:
    files = [path for path in TABLES.glob("*/*.*") if path.is_file()] + list(TABLES.glob("*.jsonl"))
    if not files:
        pytest.skip("not a checkout: the tables are not in a source distribution")
    assert sum(path.stat().st_size for path in files) < LIMIT
