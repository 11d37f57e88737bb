"""Metrics agree with numbers worked out by hand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from deepthink_cli.data.examples import Query
from deepthink_cli.evaluation.metrics import Answers, changes, wilson
from deepthink_cli.scoring.prediction import Scores, prediction_of


def answers(pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> Answers:
    made = Answers(labels)
    for gold, given in pairs:
        made.add(prediction_of(Query("", (given,), given), 1, Scores((0.0,), (0.0,))))
        made.gold[-1] = gold
    return made


MIXED = [*[("a", "a")] * 3, ("a", "b"), ("b", "b"), ("b", "a"), ("c", "a"), ("c", "b")]


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(8, 10, 0.4901625, 0.9433178), (0, 20, 0.0, 0.1611252), (10, 10, 0.7224672, 1.0), (50, 100, 0.4038315, 0.5961685)],
)
def test_the_interval_is_wilsons(right: int, n: int, low: float, high: float) -> None:
    assert wilson(right / n, n) == pytest.approx((low, high), abs=1e-7)


def test_accuracy_and_its_standard_error() -> None:
    metrics = answers(MIXED, ["a", "b", "c"]).metrics()
    assert metrics.accuracy == 4 / 8
    assert metrics.stderr == pytest.approx(0.1767767, abs=1e-7)
    assert metrics.ci95 == pytest.approx((0.2152, 0.7848), abs=1e-4)


def test_macro_f1_is_the_mean_over_labels_with_nought_for_one_never_predicted() -> None:
    metrics = answers(MIXED, ["a", "b", "c"]).metrics()
    a, b, c = (metrics.per_label[label] for label in "abc")
    assert (a.precision, a.recall, a.support) == (3 / 5, 3 / 4, 4)
    assert (b.precision, b.recall, b.support) == (1 / 3, 1 / 2, 2)
    assert (c.precision, c.recall, c.f1, c.support) == (0, 0, 0, 2)
    assert (a.f1, b.f1) == pytest.approx((2 / 3, 2 / 5))
    assert metrics.macro_f1 == pytest.approx((2 / 3 + 2 / 5) / 3)


def test_labels_that_never_occur_do_not_count_in_macro_f1() -> None:
    metrics = answers([("a", "a"), ("b", "b")], ["a", "b", "unseen"]).metrics()
    assert metrics.macro_f1 == 1
    assert list(metrics.per_label) == ["a", "b"]


def test_ties_and_the_mean_per_token_are_counted_apart() -> None:
    counted = Answers(["a", "b"])
    for gold, sums, means in [
        ("a", (0, 0), (0, 1)),
        ("b", (0, 0), (0, 1)),
        ("a", (0, 1), (1, 0)),
        ("b", (0, 1), (0, 1)),
    ]:
        counted.add(prediction_of(Query("", ("a", "b"), gold), 1, Scores(sums, means)))
    metrics = counted.metrics()
    assert (metrics.accuracy, metrics.accuracy_mean_per_token, metrics.ties) == (2 / 4, 3 / 4, 2)


def test_the_majority_is_the_most_frequent_true_label() -> None:
    assert answers(MIXED, ["c", "b", "a"]).majority() == ("a", 4 / 8)


def test_of_equally_frequent_labels_the_first_is_the_majority() -> None:
    assert answers([("b", "a"), ("a", "a")], ["b", "a"]).majority() == ("b", 1 / 2)


def test_the_confusion_table_has_the_true_label_first_in_the_order_given() -> None:
    table = answers(MIXED, ["b", "c", "a"]).confusion()
    assert table == {"b": {"b": 1, "c": 0, "a": 1}, "c": {"b": 1, "c": 0, "a": 1}, "a": {"b": 1, "c": 0, "a": 3}}
    assert list(answers([("a", "a")], ["never", "a"]).confusion()) == ["never", "a"]
    assert [list(row) for row in (table, *table.values())] == [["b", "c", "a"]] * 4


def test_without_shared_labels_there_is_no_f1_and_no_majority() -> None:
    counted = answers([("first", "first"), ("x", "y")], [])
    metrics = counted.metrics()
    assert (metrics.accuracy, metrics.macro_f1, metrics.per_label) == (1 / 2, None, {})
    assert counted.majority() is None
    assert counted.confusion() == {}


def test_rows_are_fixed_broken_or_changed_to_another_wrong_label() -> None:
    gold, first, later = zip(*["aab", "aba", "abc", "aaa", "abb", "aba"], strict=True)
    result = changes(gold, first, later, [0.0] * 6)
    assert (result.changed, result.fixed, result.broken) == (4, 2, 1)


def test_the_change_of_the_log_probability_is_paired() -> None:
    random = np.random.default_rng(1)
    first = np.log(random.uniform(0.01, 1, 40))
    later = first + random.normal(0.05, 0.01, 40)
    result, test = changes(["a"] * 40, ["a"] * 40, ["a"] * 40, (later - first).tolist()), stats.ttest_rel(later, first)
    assert result.log_probability == pytest.approx((later - first).mean())
    assert result.log_probability_ci95 == pytest.approx(tuple(test.confidence_interval(0.95)))


def test_a_single_row_has_no_interval() -> None:
    result = changes(["a"], ["b"], ["a"], [1.0])
    assert (result.log_probability, result.log_probability_ci95) == (1, None)


def test_the_errors_of_a_share_of_the_rows_count_all_labels_as_probable_as_the_last() -> None:
    made = answers([("a", "a"), ("a", "b"), ("a", "a"), ("a", "b")], ["a", "b"])
    made.probabilities[:] = array("d", [0.9, 0.6, 0.8, 0.6])
    assert [(each.given, each.wrong) for each in made.probable()] == [(1, 0), (2, 0), (4, 2)]
