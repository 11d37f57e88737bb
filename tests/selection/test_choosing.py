"""Choices from pools: independent of the file's order, balanced if asked, and recorded."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Loaded

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Progress
from deepthink_cli.io.cache import Store
from deepthink_cli.selection.choice import check_choice, choose_demonstrations
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.registry import METHODS, Choice, Pool, SelectionMethod

pytestmark = pytest.mark.plugins  # techniques and methods of choice that are named

TEMPLATE = Template("Review: {text}\nSentiment: {label}")
LABELS = ("negative", "positive")
ROWS = [Query(f"a film with number {n * n}", LABELS, LABELS[n % 3 > 0]) for n in range(24)]


def pool_of(rows: list[Query], labels: tuple[str, ...] = LABELS) -> PoolRows:
    """A pool of rows of the file rows.jsonl."""
    return PoolRows.of("rows.jsonl", rows, TEMPLATE, labels)


def options(method: str, shots: int, seed: int = 0, balance: bool | None = None) -> SelectOptions:
    return SelectOptions.checked(demos_by=method, shots=shots, seed=seed, balance=balance)


def longest(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """The rows with the longest hidden states; they are scored by that."""
    assert pool.hidden is not None
    lengths = np.linalg.norm(pool.hidden, axis=1).astype(np.float64)
    return Choice([int(row) for row in np.argsort(-lengths)[:shots]], lengths)


def nearest(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """The rows that are nearest to the first query, the nearest first."""
    assert pool.hidden is not None
    distances = np.linalg.norm(pool.hidden - pool.target_hidden[0], axis=1).astype(np.float64)
    return Choice([int(row) for row in np.argsort(distances)[:shots]], -distances, ordered=True)


@pytest.fixture(autouse=True)
def _methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "longest", SelectionMethod(longest, "long states", "this test", ("hidden",)))
    monkeypatch.setitem(METHODS, "nearest", SelectionMethod(nearest, "near states", "this test", ("hidden", "queries")))
    monkeypatch.setitem(METHODS, "sure", SelectionMethod(longest, "sure", "this test", ("hidden", "probabilities")))


@pytest.mark.parametrize("method", ["random", "stratified", "longest"])
@pytest.mark.parametrize("balanced", [False, True])
def test_the_order_of_the_file_changes_nothing(method: str, balanced: bool, loaded: Loaded) -> None:
    asked = options(method, 7, seed=5, balance=balanced)
    chosen = choose_demonstrations(loaded("llama"), pool_of(ROWS), asked)
    shuffled = choose_demonstrations(loaded("llama"), pool_of(random.Random(1).sample(ROWS, len(ROWS))), asked)
    assert [query.text for query in chosen.queries] == [query.text for query in shuffled.queries]
    assert chosen.selected == shuffled.selected


def test_first_takes_the_first_rows_of_the_file() -> None:
    assert choose_demonstrations(None, pool_of([ROWS[0], *ROWS]), options("first", 3)).places == (0, 2, 3)


@pytest.mark.parametrize("method", ["random", "stratified", "first", "longest"])
@pytest.mark.parametrize(("shots", "counts"), [(8, (4, 4)), (9, (5, 4))])
def test_a_balanced_choice_has_equal_numbers_of_every_label(
    method: str, shots: int, counts: tuple[int, int], loaded: Loaded
) -> None:
    chosen = choose_demonstrations(loaded("llama"), pool_of(ROWS), options(method, shots, balance=True))
    if method != "stratified":  # gives the remainder to any label
        assert chosen.labels == dict(zip(LABELS, counts, strict=True))
    assert max(chosen.labels.values()) - min(chosen.labels.values()) <= 1
    assert len(set(chosen.places)) == shots


def test_a_method_sees_the_rows_of_one_label_at_a_time_and_its_scores_are_those_of_the_rows(loaded: Loaded) -> None:
    whole = choose_demonstrations(loaded("llama"), pool_of(ROWS), options("longest", 6))
    balanced = choose_demonstrations(loaded("llama"), pool_of(ROWS), options("longest", 6, balance=True))
    assert balanced.scores == pytest.approx(whole.scores)
    for label in LABELS:
        scores = [whole.scores[place] for place, query in enumerate(ROWS) if query.gold == label]
        chosen = [whole.scores[place] for place in balanced.places if ROWS[place].gold == label]
        assert sorted(chosen) == sorted(scores)[-3:]


@pytest.mark.parametrize(
    ("shots", "asked", "counts"), [(6, None, (3, 3)), (6, False, (0, 6)), (1, None, (0, 1))], ids=str
)
def test_a_method_whose_source_balances_does_so_where_the_number_allows_it(
    shots: int, asked: bool | None, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def positive(pool: Pool, shots: int, draw: random.Random) -> Choice:
        return Choice(sorted(range(len(pool)), key=lambda row: str(pool.rows[row].gold), reverse=True)[:shots])

    monkeypatch.setitem(
        METHODS, "positive", SelectionMethod(positive, "positive", "this test", balanced_by_default=True)
    )
    chosen = choose_demonstrations(None, pool_of(ROWS), options("positive", shots, balance=asked))
    assert tuple(chosen.labels[label] for label in LABELS) == counts
    assert chosen.selected.balanced == (counts == (3, 3))


def test_a_choice_without_an_order_is_shuffled_with_the_seed(loaded: Loaded) -> None:
    choices = [choose_demonstrations(loaded("llama"), pool_of(ROWS), options("longest", 8, seed)) for seed in (0, 0, 1)]
    assert choices[0].places == choices[1].places != choices[2].places
    assert Counter(choices[0].places) == Counter(choices[2].places)


def test_a_method_that_reads_queries_chooses_for_them(loaded: Loaded) -> None:
    query = replace(ROWS[5], gold=None)
    chosen = choose_demonstrations(loaded("llama"), pool_of(ROWS), options("nearest", 3), queries=[query])
    assert chosen.places[0] == 5
    assert (chosen.observed, chosen.cached) == (25, 0)


def test_what_was_read_is_taken_from_the_cache_and_told(loaded: Loaded, tmp_path: Path) -> None:
    told: list[Event] = []
    choose_demonstrations(loaded("llama"), pool_of(ROWS), options("longest", 3), Store(tmp_path), told.append)
    again = choose_demonstrations(loaded("llama"), pool_of(ROWS), options("longest", 5), Store(tmp_path))
    assert (again.observed, again.cached) == (0, 24)
    assert told == [Progress("reading rows", done, 24) for done in (0, 24)]


def test_the_record_names_pool_method_and_model(loaded: Loaded) -> None:
    engine, rows = loaded("llama"), pool_of([*ROWS, ROWS[3]])
    read, drawn = (
        choose_demonstrations(engine, rows, options(method, 4, 9)).selected for method in ("longest", "random")
    )
    assert (read.method, read.shots, read.seed, read.pool, read.pool_rows) == ("longest", 4, 9, "rows.jsonl", 24)
    assert (read.model, read.model_sha256) == (engine.identity.id, engine.identity.contents_sha256)
    assert (drawn.model, drawn.model_sha256) == (None, None)
    assert read.pool_sha256 == drawn.pool_sha256 != pool_of(ROWS[1:]).sha256


REFUSED = {
    "more shots than rows": (pool_of([*ROWS, ROWS[0]]), ("random", 25), r"rows.jsonl has 24 rows .*; 1 ident"),
    "a class smaller than its share": (
        pool_of(ROWS),
        ("random", 18, 0, True),
        "balance: label 'negative' has 8 rows, its share of shots 18 is 9",
    ),
    "a class without a row": (
        pool_of(ROWS, ("negative", "neutral", "positive")),
        ("random", 6, 0, True),
        "balance: rows.jsonl has no row with the label 'neutral'; add some, or omit it",
    ),
    "fewer shots than classes": (pool_of(ROWS), ("random", 1, 0, True), "shots 1: the pool has 2 labels"),
    "one class": (pool_of(ROWS[1:3]), ("random", 1), "rows.jsonl: one label only, 'positive'"),
    "no model": (pool_of(ROWS), ("longest", 1), "demos_by longest: reads the rows with a model"),
    "queries that are not read": (pool_of(ROWS), ("longest", 1), "for: demos_by longest does not read the queries"),
    "balance without label words": (
        pool_of([Query("a", ("x", "y"), "x"), Query("b", ("z", "y"), "z")], ()),
        ("random", 1, 0, True),
        "balance: the rows of rows.jsonl have candidates of their own",
    ),
    "probabilities of different candidates": (
        pool_of([Query("a", ("x", "y"), "x"), Query("b", ("z", "y"), "z")], ()),
        ("sure", 1),
        "demos_by sure: compares the labels' probabilities",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_chosen_is_refused(case: str) -> None:
    pool, asked, message = REFUSED[case]
    queries = ROWS[:1] if "queries" in case else ()
    with pytest.raises(InputError, match=message) as error:
        choose_demonstrations(None, pool, options(*asked), queries=queries)
    assert len(error.value.messages) == 1


def test_a_pool_of_rows_with_candidates_of_their_own_can_be_chosen_from(loaded: Loaded) -> None:
    rows = pool_of([Query(f"{n} and {n}", (str(2 * n), "0"), str(2 * n)) for n in range(1, 6)], ())
    check_choice(rows, options("longest", 2))
    assert len(choose_demonstrations(loaded("llama"), rows, options("longest", 2)).places) == 2
