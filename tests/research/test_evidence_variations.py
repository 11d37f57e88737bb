"""What else was varied: which rows are compared, and what the page says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.small_evidence import write_row
from scipy.stats import ttest_ind

from research.evidence.claims import claims
from research.evidence.load import read_evidence
from research.evidence.variations import by_group, by_shots, over_orders, variations


def scores_with(right: int, of: int = 20) -> np.ndarray:
    """Scores whose first `right` inputs are labelled as the truth, which alternates, and the others not."""
    true = np.array([[0.0, -1.0], [-1.0, 0.0]] * (of // 2))
    true[right:] = true[right:, ::-1]
    return true


def test_a_variation_is_compared_with_one_reading_of_its_own_rows(tmp_path: Path) -> None:
    for seed in range(2):
        for shots, right in ((4, 10), (16, 16)):
            write_row(tmp_path / "shots", scores_with(12), seed=seed, eta=0.01, t=1, shots=shots)
            write_row(tmp_path / "shots", scores_with(right), seed=seed, eta=0.01, t=5, shots=shots)
        write_row(tmp_path / "shots", scores_with(20), seed=seed, eta=0.01, t=2, shots=4)  # a T that is not asked for
    found = {each.name: each.differences["accuracy"] for each in variations(read_evidence(tmp_path))}
    assert {name: (each.before, each.after) for name, each in found.items()} == {
        "4 demonstrations": pytest.approx((0.6, 0.5)),
        "16 demonstrations": pytest.approx((0.6, 0.8)),
    }


def test_orders_of_the_same_demonstrations_are_counted_as_seeds(tmp_path: Path) -> None:
    for order, right in enumerate((8, 12, 16)):
        write_row(tmp_path / "orders", scores_with(right), eta=0.01, order=order)
        write_row(tmp_path / "orders", scores_with(12), eta=0.01, order=order, t=5)
    evidence = read_evidence(tmp_path)
    (found,) = variations(evidence)
    assert [pair.seed for pair in found.pairs] == [0, 1, 2]
    spread = over_orders(evidence)
    assert (spread.before, spread.after) == pytest.approx((0.2, 0.0))
    ours = {each.words: each.found for each in claims(evidence, {})}["accuracy varies less over orders"]
    assert ours.figures.startswith("20.0 at T = 1; T = 5 0.0 [-")


def test_numbers_of_demonstrations_are_shown_beside_the_tasks_own(tmp_path: Path) -> None:
    for seed, right in enumerate((10, 14)):
        write_row(tmp_path / "own", scores_with(16), eta=0.01, seed=seed)
        write_row(tmp_path / "own", scores_with(18), eta=0.01, seed=seed, t=5)
        write_row(tmp_path / "shots", scores_with(right), eta=0.01, seed=seed, shots=4)
        write_row(tmp_path / "shots", scores_with(12), eta=0.01, seed=seed, shots=4, t=5)
    four, eight = by_shots(read_evidence(tmp_path))
    assert (four.shots, eight.shots) == ("4", "8 to 8, the tasks' own")
    assert (four.change.before, four.change.mean) == pytest.approx((0.6, 0.0))
    assert (four.spread.before, four.spread.after) == pytest.approx((0.1 * 2**0.5, 0.0))
    assert (eight.change.before, eight.change.mean) == pytest.approx((0.8, 0.1))


def test_subjects_count_alike_whatever_their_rows_and_are_grouped_by_category(tmp_path: Path) -> None:
    for task, of, before, after in (("mmlu/astronomy", 20, 10, 12), ("mmlu/virology", 10, 5, 7)):
        category = "mmlu/stem" if task == "mmlu/astronomy" else "mmlu/others"
        for t, right in ((1, before), (5, after)):
            write_row(tmp_path / "subjects", scores_with(right, of), task=task, t=t, groups=("mmlu", category))
    found = by_group(read_evidence(tmp_path))
    assert {name: (len(each.steps), each.before, each.change.mean) for name, each in found.items()} == {
        "mmlu": (2, 0.5, pytest.approx(0.15)),
        "mmlu/stem": (1, 0.5, pytest.approx(0.1)),
        "mmlu/others": (1, 0.5, pytest.approx(0.2)),
    }


def test_a_category_is_compared_with_another_as_welchs_test_does(tmp_path: Path) -> None:
    steps = {"mmlu/stem": (2, 4, 3), "mmlu/others": (0, 2)}
    for category, of_category in steps.items():
        for number, step in enumerate(of_category):
            for t, right in ((1, 10), (5, 10 + step)):
                task, groups = f"{category}-{number}", ("mmlu", category)
                write_row(tmp_path / "subjects", scores_with(right), task=task, t=t, groups=groups)
    found = by_group(read_evidence(tmp_path))
    assert (found["mmlu/stem"].answers, found["mmlu/stem"].more) == (60, 9)
    more = found["mmlu/stem"].beyond(found["mmlu/others"])
    expected = ttest_ind([0.1, 0.2, 0.15], [0.0, 0.1], equal_var=False).confidence_interval()
    assert more.mean == pytest.approx(0.1)
    assert more.interval == pytest.approx((expected.low, expected.high))
