"""The padded engine: one sequence a row with its own copy of the memory, for every network with a cache."""

from __future__ import annotations

import pytest
from conftest import Loaded, Models, read
from queries import DEMOS, NOT_PACKED, QUERIES, assert_close, plain_scores

from deepthink_cli import load_model, score
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_it_scores_and_reads_as_the_packed_engine_does(family: str, loaded: Loaded) -> None:
    packed = loaded(family)
    padded = PaddedEngine(packed.model)
    assert isinstance(packed, PackedEngine)
    memory = read(padded, DEMOS)
    for scores, query in zip(score(padded, memory, QUERIES), QUERIES, strict=True):
        assert scores.sums == pytest.approx(plain_scores(packed, DEMOS, query), abs=1e-4)
    readings = [Reading(DEMOS[::-1], memory, len(DEMOS)), Reading((5, 6)), Reading(DEMOS, memory)]
    for present, expected in zip(padded.read(readings), packed.read(readings), strict=True):
        assert_close(present, expected)


def test_every_distinct_sequence_is_one_row(loaded: Loaded) -> None:
    engine = loaded("bloom")
    rows = engine.plan(QUERIES[:2]).rows
    assert sorted(row.query for row in rows) == [0, 0, 0, 1, 1]  # of SHARED: none, 9 and 9, 10 are fed
    assert [len(row) for row in rows] == sorted(map(len, rows), reverse=True)


@pytest.mark.parametrize(("free", "rows"), [(2**40, 3), (3 * 2**14, 1)])
def test_a_pass_has_as_many_rows_as_the_free_memory_holds(free: int, rows: int, loaded: Loaded) -> None:
    engine = loaded("bloom")
    engine.free = free
    assert min(3, engine.bounds(read(engine, DEMOS), 10)[1]) == rows


@pytest.mark.parametrize("family", sorted(NOT_PACKED))
def test_it_is_announced_with_its_reason_unless_it_was_asked_for(family: str, models: Models) -> None:
    engine = load_model(str(models(family)))
    assert engine.notice == engine.description
    assert engine.warning is None
    asked_for = load_model(str(models(family)), engine="padded")
    assert (asked_for.description, asked_for.notice) == ("padded engine", None)
