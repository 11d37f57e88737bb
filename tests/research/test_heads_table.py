"""The head beside other corrections: which rows are drawn, and labels without rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from research.cases import rows_of
from research.heads import Measured, by_head, calibration_error, drawn, page

ROOT = Path(__file__).resolve().parents[2]

STATES = np.random.default_rng(0).normal(size=(60, 2, 8))
GOLD = [*[0] * 40, *[1] * 17, *[2] * 2, 3]
ROWS = Measured(np.zeros((60, 4)), STATES + 3 * np.array(GOLD)[:, None, None], GOLD, range(60))


def test_two_rows_of_each_label_that_has_two_are_drawn_first() -> None:
    twelve = Counter(drawn(ROWS, 12, 0).gold)
    assert sum(twelve.values()) == 12
    assert min(twelve[label] for label in (0, 1, 2)) == 2
    assert sorted(drawn(ROWS, 60, 0).gold) == GOLD


@pytest.mark.parametrize("name", ["centroid", "head"])
def test_a_label_of_one_row_is_never_given(name: str) -> None:
    scores = by_head(name, ROWS, ROWS)
    assert np.isneginf(scores[:, 3]).all()
    assert (scores.argmax(axis=1)[:59] == np.array(GOLD[:59])).mean() > 0.9


def test_the_calibration_error_is_the_mean_gap_of_confidence_and_accuracy() -> None:
    """Four labels with a probability of 0.95, three of them right, and four with 0.55, one of them right."""
    shares = np.array([[0.95, 0.05]] * 4 + [[0.55, 0.45]] * 4)
    gold = [0, 0, 0, 1, 0, 1, 1, 1]
    assert calibration_error(np.log(shares), gold) == pytest.approx((0.95 - 0.75) / 2 + (0.55 - 0.25) / 2)


def test_the_page_has_the_tables_of_the_rows() -> None:
    text = (ROOT / "docs" / "predict.md").read_text(encoding="utf-8")
    assert page(text, rows_of(ROOT / "research" / "tables" / "heads.jsonl")) == text
