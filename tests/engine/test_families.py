"""Every architecture: one reading is plain in-context learning, and models without a memory are refused."""

from __future__ import annotations

import pytest
from conftest import Loaded, Models
from helpers.families import EVERY_FAMILY
from queries import plain_scores

from deepthink_cli import (
    DemonstrationSet,
    Gate,
    Method,
    Query,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

QUERIES = [
    Query("a quiet joy", ("positive", "negative", "neither of these")),
    Query("so so", ("good", "bad", "goodness")),
]


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_one_reading_is_plain_in_context_learning(family: str, loaded: Loaded, reviews: DemonstrationSet) -> None:
    engine = loaded(family)
    demos = tokenize_demonstrations(engine.tokenizer, reviews)
    (memory,) = think(engine, demos, Method(1))
    queries = tokenize_queries(engine.tokenizer, reviews.template, QUERIES)
    for query, found in zip(queries, score(engine, memory, queries), strict=True):
        assert found.sums == pytest.approx(plain_scores(engine, demos.token_ids, query), abs=1e-4)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_thinking_moves_every_layer_of_every_family(family: str, loaded: Loaded, reviews: DemonstrationSet) -> None:
    engine = loaded(family)
    memory = list(think(engine, tokenize_demonstrations(engine.tokenizer, reviews), Method(3, Gate(0.1))))[-1]
    assert memory.not_finite() is None
    assert all(change > 0 for change in memory.drift[-1].values[1:])


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_the_size_of_a_memory_is_known_before_the_weights_are_loaded(
    family: str, models: Models, loaded: Loaded, reviews: DemonstrationSet
) -> None:
    spec = open_model(ModelOptions(model=str(models(family))))
    engine = loaded(family)
    memory = next(think(engine, tokenize_demonstrations(engine.tokenizer, reviews)))
    assert spec.memory_bytes(memory.length) == memory.nbytes
