"""Rows of a pass: shared tokens are fed once, and every candidate is asked for."""

from __future__ import annotations

from queries import SHARED, UNEQUAL

from deepthink_cli.engine.packing import lines, tree
from deepthink_cli.model.tokens import TokenizedQuery


def test_leading_tokens_that_candidates_share_are_fed_once() -> None:
    row = tree(0, TokenizedQuery((1, 2), SHARED))
    assert row.ids == (1, 2, 9, 10)  # nobody's last token, unless another candidate goes on from it
    assert row.depths == (0, 1, 2, 3)
    branched = tree(0, TokenizedQuery((1, 2), UNEQUAL))
    assert branched.ids == (1, 2, 20, 21, 22, 24)
    assert branched.depths == (0, 1, 2, 3, 4, 2)
    assert branched.ends == (6, 6, 5, 5, 5, 6)


def test_one_sequence_a_row_feeds_each_sequence_once() -> None:
    rows = list(lines(0, TokenizedQuery((1, 2), SHARED)))
    assert sorted(row.ids for row in rows) == [(1, 2), (1, 2, 9), (1, 2, 9, 10)]
    assert sorted(candidate for row in rows for candidate in {asked[2] for asked in row.asked}) == [0, 1, 2, 3, 4]
