"""What holds of every packing plan: each needed prefix is fed once, and sees its own tokens and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from deepthink_cli.engine.packing import PackedRow, blocks, lines, requests, tree
from deepthink_cli.model.tokens import TokenizedQuery

TOKEN = st.integers(0, 3)
SEQUENCE = st.lists(TOKEN, min_size=1, max_size=5).map(tuple)
QUERY = st.builds(TokenizedQuery, SEQUENCE, st.lists(SEQUENCE, min_size=1, max_size=7, unique=True).map(tuple))
ROWS = st.lists(QUERY, min_size=1, max_size=6).map(
    lambda queries: [
        row for number, query in enumerate(queries) for row in (tree(number, query), *lines(number, query))
    ]
)


def seen(row: PackedRow, place: int) -> list[int]:
    """The tokens that a token sees, itself the last."""
    return [other for other in range(place + 1) if place < row.ends[other]]


def read(row: PackedRow, place: int) -> tuple[int, ...]:
    """The sequence that ends with a token, as the token sees it."""
    return tuple(row.ids[other] for other in seen(row, place))


def answers_asked(rows: Sequence[PackedRow]) -> Counter[tuple[tuple[int, ...], int, int]]:
    """After which sequence each token is asked, and for which candidate."""
    return Counter(
        (read(row, row.first + place), token, candidate) for row in rows for place, token, candidate in row.asked
    )


def answers_wanted(query: TokenizedQuery) -> Counter[tuple[tuple[int, ...], int, int]]:
    return Counter(
        (query.prefix + answer[:n], token, candidate)
        for candidate, answer in enumerate(query.answers)
        for n, token in enumerate(answer)
    )


@given(QUERY)
def test_a_tree_feeds_every_needed_prefix_once(query: TokenizedQuery) -> None:
    row = tree(7, query)
    fed = Counter(read(row, place) for place in range(len(row)))
    starts = {query.prefix[:n] for n in range(1, len(query.prefix) + 1)}
    needed = {query.prefix + answer[:n] for answer in query.answers for n in range(1, len(answer))}
    assert fed == Counter(starts | needed)
    assert row.query == 7


@given(QUERY)
def test_in_a_tree_a_token_stands_behind_those_it_sees(query: TokenizedQuery) -> None:
    row = tree(0, query)
    assert list(row.depths) == [len(seen(row, place)) - 1 for place in range(len(row))]
    for place in range(len(row)):
        # What it sees is its parent, with all that its parent sees.
        parents = seen(row, place)[:-1]
        assert not parents or parents == seen(row, parents[-1])
        assert place < row.ends[place] <= len(row)


@given(QUERY)
def test_every_token_of_every_candidate_is_asked_once_where_it_follows(query: TokenizedQuery) -> None:
    assert answers_asked([tree(0, query)]) == answers_wanted(query)
    assert answers_asked(list(lines(0, query))) == answers_wanted(query)


@given(QUERY)
def test_plain_sequences_are_fed_once_each(query: TokenizedQuery) -> None:
    rows = list(lines(0, query))
    assert Counter(row.ids for row in rows) == Counter({query.prefix + answer[:-1] for answer in query.answers})
    for row in rows:
        assert list(row.depths) == list(range(len(row)))
        assert set(row.ends) == {len(row)}


@given(ROWS)
def test_blocks_cover_the_rows_and_hide_what_a_token_does_not_see(rows: list[PackedRow]) -> None:
    found = blocks(rows)
    assert [len(depths) for block in found for depths in block.depths] == [len(row) for row in rows]
    assert [block.start for block in found] == [0, *(block.stop for block in found[:-1])]
    unread = iter(rows)
    for block in found:
        hidden = block.hidden_RSS()
        if hidden is None:
            hidden = torch.ones(1, block.size, block.size).triu(1).bool()
        for number in range(len(block.depths)):
            row = next(unread)
            masked = hidden[number if len(hidden) > 1 else 0, : len(row), : len(row)]
            for place in range(len(row)):
                assert (~masked[place]).nonzero()[:, 0].tolist() == seen(row, place)
                if len(row) < block.size:  # no token sees the padding
                    assert hidden[number if len(hidden) > 1 else 0, place, len(row) :].all()


@given(ROWS)
def test_what_is_read_off_a_pass_is_what_its_rows_ask(rows: list[PackedRow]) -> None:
    starts = [sum(len(row) for row in rows[:number]) for number in range(len(rows))]
    plan = requests(rows, starts)
    places = plan.places_M.tolist()
    asked = Counter(
        (places[where], token, plan.scores[owner])
        for where, token, owner in zip(
            plan.asked_N.tolist(), plan.tokens_N.tolist(), plan.owners_N.tolist(), strict=True
        )
    )
    expected = Counter(
        (start + row.first + place, token, (row.query, candidate))
        for row, start in zip(rows, starts, strict=True)
        for place, token, candidate in row.asked
    )
    assert asked == expected
    assert len(set(places)) == len(places)
    assert len(set(plan.scores)) == len(plan.scores)
