"""The weight of a memory's first token: softmax weights scaled and normalised again, in every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import read
from helpers.families import WINDOWED, write_model
from helpers.oracle import LlamaOracle
from helpers.soak import with_soak
from queries import QUERIES, assert_close

from deepthink_cli import DemonstrationSet, Memory, Method, load_model, score, think, tokenize_demonstrations
from deepthink_cli.corrections import FirstToken
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.decoding import Decoding, Prompt
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import Provenance

DEMOS = tuple(5 + 7 * number % 300 for number in range(12))
WEIGHTS = (0.25, 0.5, 2.0, 8.0)
TRIED = (("llama", 0.25), ("llama", 8.0), ("mistral", 2.0))


@pytest.fixture
def provenance(llama: Engine, reviews: DemonstrationSet) -> Provenance:
    """The provenance of a memory that a test puts its own tensors into."""
    demonstrations = tokenize_demonstrations(llama.tokenizer, reviews)
    found = next(iter(think(llama, demonstrations, Method(iterations=1)))).provenance
    assert found is not None
    return found


def weighted(memory: Memory, provenance: Provenance, weight: float) -> Memory:
    return replace(memory, provenance=replace(provenance, first_token=FirstToken(weight)))


def both(engine: BatchedEngine) -> list[BatchedEngine]:
    return [PackedEngine(engine.model), PaddedEngine(engine.model)]


@pytest.mark.parametrize(("family", "weight"), with_soak(product(["llama", "mistral"], WEIGHTS), TRIED))
def test_scores_are_those_of_scaled_weights_in_float64(
    family: str, weight: float, provenance: Provenance, models: Callable[[str], Path], tmp_path: Path
) -> None:
    fields: dict[str, Any] = WINDOWED.get(family, {})
    engine = load_model(str(write_model(tmp_path, family, **fields)))
    oracle = LlamaOracle(engine.model.network)
    (layers,) = oracle.think(DEMOS, 1, 0.0, 0.0, False)
    oracle.first_weight = weight
    for each in both(engine):
        scores = score(each, weighted(read(each, DEMOS), provenance, weight), QUERIES)
        for query, found in zip(QUERIES, scores, strict=True):
            expected = [oracle.score(layers, query.prefix, answer) for answer in query.answers]
            assert found.sums == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "qwen3", "gpt_oss"])
def test_both_engines_agree(family: str, provenance: Provenance, models: Callable[[str], Path]) -> None:
    engine = load_model(str(models(family)))
    packed, padded = both(engine)
    memory = weighted(read(engine, DEMOS), provenance, 3.0)
    for one, other in zip(score(packed, memory, QUERIES), score(padded, memory, QUERIES), strict=True):
        assert one.sums == pytest.approx(other.sums, abs=1e-3)
    readings = [each.read([Reading(DEMOS[:5], memory, len(DEMOS))])[0] for each in (packed, padded)]
    assert_close(*readings)
    plain = score(packed, read(engine, DEMOS), QUERIES)[0].sums
    assert score(packed, memory, QUERIES)[0].sums != pytest.approx(plain, abs=1e-5)


def test_a_weight_of_one_changes_no_bit(provenance: Provenance, llama: BatchedEngine) -> None:
    for each in both(llama):
        plain = read(each, DEMOS)
        one, stored = score(each, plain, QUERIES), score(each, weighted(plain, provenance, 1.0), QUERIES)
        assert [scores.sums for scores in one] == [scores.sums for scores in stored]


def test_the_weight_is_that_of_the_first_token_only(provenance: Provenance, llama: BatchedEngine) -> None:
    """A token that stands twice in the memory has the weight 2 (keys and values have no place of their own)."""
    plain = read(llama, DEMOS)
    doubled = plain.first(1).followed_by(plain)
    cache, query = doubled.as_cache(), torch.tensor([[50, 51, 52]])
    body: Any = llama.model.network
    positions = torch.arange(len(DEMOS), len(DEMOS) + 3)[None]
    logits = body(input_ids=query, past_key_values=cache, position_ids=positions).logits[0, -1].double()
    expected = logits.log_softmax(-1)[7].item()
    found = score(llama, weighted(plain, provenance, 2.0), [TokenizedQuery((50, 51, 52), ((7,),))])
    assert found[0].sums[0] == pytest.approx(expected, abs=1e-4)


def test_generation_continues_with_the_weight(provenance: Provenance, llama: BatchedEngine) -> None:
    memory = weighted(read(llama, DEMOS), provenance, 8.0)
    (new,) = llama.generate(memory, [Prompt((50, 51, 52), 0)], Decoding(max_new_tokens=1))
    query = TokenizedQuery((50, 51, 52), tuple((token,) for token in range(llama.model.known_tokens)))
    sums = score(llama, memory, [query])[0].sums
    assert new.id == max(range(len(sums)), key=sums.__getitem__)


def test_an_engine_that_knows_no_weight_refuses_the_memory(provenance: Provenance, llama: BatchedEngine) -> None:
    memory = weighted(read(llama, DEMOS), provenance, 2.0)
    with pytest.raises(InputError, match="does not apply the weight of the first token"):
        Engine.check_memory(llama, memory)
