"""Passes of bounded size: many queries and readings give what each alone gives, whatever the size of a pass."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import Loaded, Models, Soak, read
from helpers.families import EVERY_FAMILY
from queries import (
    DEMOS,
    QUERIES,
    SHARED,
    UNEQUAL,
    assert_close,
    plain_scores,
    tensors,
    with_passes_of,
)

from deepthink_cli import Memory, load_model, score
from deepthink_cli.engine.base import Reading, ScoringPlan
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.scoring.likelihood import score_each

LONG, SHORT = DEMOS, tuple(range(60, 65))


def sums(engine: BatchedEngine, memory: Memory, queries: Sequence[TokenizedQuery], tokens: int) -> list[float]:
    return [value for scores in score(with_passes_of(engine, tokens), memory, queries) for value in scores.sums]


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_family_scores_as_whole_prompts_do(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    memory = read(engine, DEMOS)
    expected = [value for query in QUERIES for value in plain_scores(engine, DEMOS, query)]
    for tokens in (7, 50, 4096):  # shorter than a query, a few passes, one pass
        assert sums(engine, memory, QUERIES, tokens) == pytest.approx(expected, abs=1e-4)
    assert sums(engine, memory, QUERIES[:1], 4096) == pytest.approx(expected[: len(SHARED)], abs=1e-4)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_family_reads_together_as_it_reads_alone(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    first = engine.model.read(LONG)
    readings = [Reading(LONG), Reading(SHORT, first, len(LONG)), Reading(LONG, first, len(LONG)), Reading(SHORT)]
    alone = [engine.model.read(reading.token_ids, reading.history, reading.start) for reading in readings]
    for tokens in (1, 45, 4096):  # one a pass, two a pass, all together
        for present, expected in zip(with_passes_of(engine, tokens).read(readings), alone, strict=True):
            assert_close(present, expected)


def test_many_queries_score_as_each_alone(llama: BatchedEngine) -> None:
    pick = random.Random(0)
    queries = [TokenizedQuery(tuple(pick.choices(range(3, 300), k=1 + n % 9)), SHARED) for n in range(200)]
    memory = read(llama, DEMOS)
    together = score(llama, memory, queries)
    for number in range(0, 200, 23):
        assert score(llama, memory, [queries[number]])[0].sums == pytest.approx(together[number].sums, abs=1e-5)


@pytest.mark.parametrize("family", ["gpt2", pytest.param("bloom", marks=pytest.mark.soak)])
def test_thousands_of_queries_score_as_one_does(family: str, loaded: Loaded, soak: Soak) -> None:
    engine, count = loaded(family), soak.count(3_000, 10_000)
    memory = read(engine, DEMOS)
    pick = random.Random(1)
    kinds = [SHARED, UNEQUAL, ((30,),), ((31,), (32, 33))]
    queries = [
        TokenizedQuery(tuple(pick.choices(range(3, 300), k=pick.randint(1, 6))), pick.choice(kinds))
        for _ in range(count)
    ]
    together = score(engine, memory, queries)
    assert [len(scores.sums) for scores in together] == [len(query.answers) for query in queries]
    for number in range(0, count, 299):
        assert together[number].sums == pytest.approx(plain_scores(engine, DEMOS, queries[number]), abs=1e-4)


def test_a_plan_without_rows_is_scored_from_its_queries(llama: BatchedEngine) -> None:
    memory = llama.model.read(DEMOS)
    assert llama.score([memory], ScoringPlan(tuple(QUERIES))) == llama.score([memory], llama.plan(QUERIES))


@pytest.mark.parametrize("family", ["llama", "gemma2", "bloom"])
def test_one_plan_scores_several_memories(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    memories = [read(engine, DEMOS), read(engine, DEMOS[:11])]
    together = score_each(engine, memories, engine.plan(QUERIES))
    assert together == [score(engine, memory, QUERIES) for memory in memories]


@pytest.mark.parametrize("family", ["llama", "gpt_neo"])
def test_without_demonstrations_the_query_is_read_alone(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    memory = read(engine, DEMOS)
    empty = Memory(tuple(keys[:, :0] for keys in memory.keys), tuple(values[:, :0] for values in memory.values))
    expected = [value for query in QUERIES for value in plain_scores(engine, (), query)]
    assert sums(engine, empty, QUERIES, 4096) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_a_scoring_pass_that_does_not_fit_the_device_is_halved(
    family: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_model(str(models(family)))
    memory = read(engine, DEMOS)
    expected = sums(engine, memory, QUERIES, 4096)
    whole, most = BatchedEngine.score_pass, 1

    def small(self: BatchedEngine, pasts: Any, rows: Sequence[Any]) -> Any:
        if len(rows) > most:
            raise torch.OutOfMemoryError
        return whole(self, pasts, rows)

    monkeypatch.setattr(BatchedEngine, "score_pass", small)
    assert sums(engine, memory, QUERIES, 4096) == pytest.approx(expected, abs=1e-5)
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        score(engine, memory, QUERIES[:1])


def test_a_reading_that_does_not_fit_the_device_is_split(llama: BatchedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, most, whole = with_passes_of(llama, 4096), 0, PackedEngine.read_pass

    def small(self: PackedEngine, readings: Sequence[Reading]) -> list[Memory]:
        if len(readings) > most:
            raise torch.OutOfMemoryError
        return whole(self, readings)

    monkeypatch.setattr(PackedEngine, "read_pass", small)
    with pytest.raises(torch.OutOfMemoryError):
        engine.read([Reading(SHORT)])
    most = 1
    for present, expected in zip(engine.read([Reading(SHORT), Reading(LONG)]), (SHORT, LONG), strict=True):
        assert_close(present, llama.model.read(expected))


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_readings_keep_no_more_than_their_own_tokens(family: str, loaded: Loaded) -> None:
    for present in loaded(family).read([Reading(SHORT), Reading(LONG)]):
        assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors(present))


@pytest.mark.parametrize("family", ["llama", "gpt_neo"])
def test_a_reading_too_long_and_one_that_is_not_finite_are_refused(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    with pytest.raises(InputError, match="too long: 600 tokens"):
        engine.read([Reading(SHORT), Reading((5,) * 600)])
    present = read(engine, LONG)
    broken = replace(present, values=tuple(torch.full_like(values, float("inf")) for values in present.values))
    with pytest.raises(DeepThinkError, match="NaN or infinite"):
        engine.read([Reading(LONG, broken, len(LONG))])


@pytest.mark.parametrize(("family", "name"), [("llama", "packed"), ("bloom", "padded")])
def test_the_tokens_of_a_pass_can_be_given_when_a_model_is_loaded(family: str, name: str, models: Models) -> None:
    engine = load_model(str(models(family)), batch_tokens=12)
    assert (engine.name, engine.batch_tokens, engine.tokens_together) == (name, 12, 12)
