"""Metrics agree with numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from deepthink_cli.evaluation.metrics import Answer, ChangeTally, Tally, wilson


def tally(pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> Tally:
    made = Tally(labels)
    for gold, predicted in pairs:
        made.add(gold, predicted, predicted, False)
    return made


MIXED = [*[("a", "a")] * 3, ("a", "b"), ("b", "b"), ("b", "a"), ("c", "a"), ("c", "b")]


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(8, 10, 0.4901625, 0.9433178), (0, 20, 0.0, 0.1611252), (10, 10, 0.7224672, 1.0), (50, 100, 0.4038315, 0.5961685)],
)
def test_the_interval_is_wilsons(right: int, n: int, low: float, high: float) -> None:
    assert wilson(right / n, n) == pytest.approx((low, high), abs=1e-7)


def test_the_interval_ends_where_the_share_is_z_standard_errors_away() -> None:
    for end in wilson(0.3, 40):
        assert abs(end - 0.3) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / 40), rel=1e-6)


def test_accuracy_and_its_standard_error() -> None:
    metrics = tally(MIXED, ["a", "b", "c"]).metrics()
    assert metrics.accuracy == 4 / 8
    assert metrics.stderr == pytest.approx(0.1767767, abs=1e-7)
    assert metrics.ci95 == pytest.approx((0.2152, 0.7848), abs=1e-4)


def test_macro_f1_is_the_mean_over_labels_with_nought_for_one_never_predicted() -> None:
    metrics = tally(MIXED, ["a", "b", "c"]).metrics()
    a, b, c = (metrics.per_label[label] for label in "abc")
    assert (a.precision, a.recall, a.support) == (3 / 5, 3 / 4, 4)
    assert (b.precision, b.recall, b.support) == (1 / 3, 1 / 2, 2)
    assert (c.precision, c.recall, c.f1, c.support) == (0, 0, 0, 2)
    assert (a.f1, b.f1) == pytest.approx((2 / 3, 2 / 5))
    assert metrics.macro_f1 == pytest.approx((2 / 3 + 2 / 5) / 3)


def test_labels_that_never_occur_do_not_count_in_macro_f1() -> None:
    metrics = tally([("a", "a"), ("b", "b")], ["a", "b", "unseen"]).metrics()
    assert metrics.macro_f1 == 1
    assert list(metrics.per_label) == ["a", "b"]


def test_ties_and_the_mean_per_token_are_counted_apart() -> None:
    counted = Tally(["a", "b"])
    counted.add("a", "a", "b", True)
    counted.add("b", "a", "b", True)
    counted.add("a", "b", "a", False)
    counted.add("b", "b", "b", False)
    metrics = counted.metrics()
    assert (metrics.accuracy, metrics.accuracy_mean_per_token, metrics.ties) == (2 / 4, 3 / 4, 2)


def test_the_majority_is_the_most_frequent_true_label() -> None:
    assert tally(MIXED, ["c", "b", "a"]).majority() == ("a", 4 / 8)


def test_of_equally_frequent_labels_the_first_is_the_majority() -> None:
    assert tally([("b", "a"), ("a", "a")], ["b", "a"]).majority() == ("b", 1 / 2)


def test_the_confusion_table_has_the_true_label_first_in_the_order_given() -> None:
    table = tally(MIXED, ["b", "c", "a"]).table()
    assert table == {
        "b": {"b": 1, "c": 0, "a": 1},
        "c": {"b": 1, "c": 0, "a": 1},
        "a": {"b": 1, "c": 0, "a": 3},
    }
    assert list(tally([("a", "a")], ["never", "a"]).table()) == ["never", "a"]
    assert [list(row) for row in (table, *table.values())] == [["b", "c", "a"]] * 4


def test_without_shared_labels_there_is_no_f1_and_no_majority() -> None:
    counted = tally([("first", "first"), ("x", "y")], [])
    metrics = counted.metrics()
    assert (metrics.accuracy, metrics.macro_f1, metrics.per_label) == (1 / 2, None, {})
    assert counted.majority() is None
    assert counted.table() == {}


def test_rows_are_fixed_broken_or_changed_to_another_wrong_label() -> None:
    counted = ChangeTally()
    for gold, first, later in ["aab", "aba", "abc", "aaa", "abb", "aba"]:
        counted.add(gold, Answer(first, 0.0), Answer(later, 0.0))
    result = counted.result()
    assert (result.changed, result.fixed, result.broken) == (4, 2, 1)


def test_the_change_of_the_log_probability_is_paired() -> None:
    random = np.random.default_rng(1)
    first = np.log(random.uniform(0.01, 1, 40))
    later = first + random.normal(0.05, 0.01, 40)
    counted = ChangeTally()
    for before, after in zip(first.tolist(), later.tolist(), strict=True):
        counted.add("a", Answer("a", before), Answer("a", after))
    result, test = counted.result(), stats.ttest_rel(later, first)
    assert result.log_probability == pytest.approx((later - first).mean())
    assert result.log_probability_ci95 == pytest.approx(tuple(test.confidence_interval(0.95)))


def test_a_single_row_has_no_interval() -> None:
    counted = ChangeTally()
    counted.add("a", Answer("b", -1.5), Answer("a", -0.5))
    assert counted.result().log_probability == 1
    assert counted.result().log_probability_ci95 is None
