"""What differs between two labellings of the same rows."""

from __future__ import annotations

import math

import pytest

from deepthink_cli.data.examples import Query
from deepthink_cli.plugins.memories.labels import LabelChangeTally

YES = {"yes": -1.0, "no": -2.0}
NO = {"yes": -2.0, "no": -1.0}
SHARE = math.log(1 / (1 + math.exp(-1)))


def query(gold: str | None) -> Query:
    return Query("text", ("yes", "no"), gold, "rows.jsonl:1")


def test_changed_rows_are_counted_by_what_they_were_and_became() -> None:
    tally = LabelChangeTally()
    tally.add(0, query("yes"), ("yes", "yes"), (YES, YES))
    tally.add(1, query("no"), ("yes", "no"), (YES, NO))
    tally.add(2, query("yes"), ("yes", "no"), (YES, NO))
    tally.add(3, query("no"), ("no", "yes"), (NO, YES))
    changes = tally.result()
    assert changes.transitions == {("yes", "no"): 2, ("no", "yes"): 1}
    assert [row.index for row in changes.rows] == [1, 2, 3]
    assert (changes.labelled.accuracy_before, changes.labelled.accuracy_after) == (0.75, 0.5)
    assert (changes.labelled.changes.fixed, changes.labelled.changes.broken) == (1, 2)
    assert changes.log_probability == pytest.approx(-0.75)
    assert changes.largest == pytest.approx(1.0)


def test_rows_without_true_labels_have_no_accuracy() -> None:
    tally = LabelChangeTally()
    tally.add(0, query(None), ("yes", "no"), (YES, NO))
    changes = tally.result()
    assert (changes.n, len(changes.rows), changes.labelled, changes.log_probability_ci95) == (1, 1, None, None)


def test_a_constant_that_is_added_to_all_scores_changes_nothing() -> None:
    tally = LabelChangeTally()
    tally.add(0, query("yes"), ("yes", "yes"), (YES, {label: score - 7 for label, score in YES.items()}))
    assert tally.result().largest == pytest.approx(0.0, abs=1e-12)
