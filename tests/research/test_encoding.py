"""Scores as tables store them: rounded, with the same answers, and small enough to be committed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from research.encoding import BIAS, CALIBRATED, LABEL, PROBABILITY, SCORES, UNIT, alike, decoded, encoded
from research.evidence.measures import Floats, batch_calibrated, normalised, predicted
from research.packing import TABLES

LABELS = ("bad", "fair", "good")
LIMIT = 12_000_000  # bytes of all tables


def samples(scores: Floats, bias: Floats | None = None) -> pa.Table:
    """The rows of a file of samples, as `deepthink run` writes them."""
    answers = normalised(scores) if bias is None else normalised(scores) - bias
    best = predicted(answers)
    columns = {
        "where": [f"rows.jsonl:{number}" for number in range(len(scores))],
        "gold": ["good"] * len(scores),
        LABEL: [LABELS[place] for place in best],
        PROBABILITY: np.exp(normalised(answers))[np.arange(len(best)), best],
        "candidates": [LABELS] * len(scores),
        SCORES: scores.tolist(),
    }
    if bias is not None:
        columns |= {CALIBRATED: answers.tolist(), BIAS: bias.tolist()}
    return pa.table(columns)


def lists(rows: pa.Table, name: str) -> Floats:
    return np.array(rows[name].to_pylist())


@pytest.mark.parametrize("unit", [UNIT, 1e-6])
def test_scores_come_back_as_log_probabilities_over_the_candidates(unit: float) -> None:
    scores = np.random.default_rng(0).normal(size=(50, 3)) * 5 - 7
    rows = samples(scores)
    stored = encoded(rows, unit)
    back = decoded(stored, {}, unit)
    assert LABEL not in stored.column_names
    assert alike(rows, back)
    assert np.abs(lists(back, SCORES) - normalised(scores)).max() <= unit
    np.testing.assert_allclose(back[PROBABILITY].to_numpy(), rows[PROBABILITY].to_numpy(), atol=unit)
    assert encoded(back, unit).equals(stored)


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
    scores = np.random.default_rng(2).normal(size=(200, 3))
    unit = 0.01
    back = lists(decoded(encoded(samples(scores), unit), {}, unit), SCORES)
    before, rounded = (batch_calibrated(normalised(each)) for each in (scores, np.rint(scores / unit) * unit))
    assert (predicted(rounded) != predicted(before)).any()
    assert (predicted(batch_calibrated(back)) == predicted(before)).all()


def test_a_candidate_without_a_probability_has_none() -> None:
    back = decoded(encoded(samples(np.array([[-1.0, -np.inf, -2.0], [-1.0, -3.0, -2.0]]))), {})
    assert np.isneginf(lists(back, SCORES)).tolist() == [[False, True, False], [False] * 3]


def test_all_tables_together_have_less_than_12_megabytes() -> None:
    files = [path for path in TABLES.glob("*/*.*") if path.is_file()] + list(TABLES.glob("*.jsonl"))
    if not files:
        pytest.skip("not a checkout: the tables are not in a source distribution")
    assert sum(path.stat().st_size for path in files) < LIMIT
