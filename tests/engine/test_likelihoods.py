"""Scores of queries together with what greedy decoding writes, after a memory or after nothing."""

from __future__ import annotations

import pytest
import torch
from conftest import Loaded, read
from queries import DEMOS, QUERIES, with_passes_of
from test_minimal_engine import Similarity

from deepthink_cli import Engine
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery


def greedy(engine: BatchedEngine, ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The tokens that plain greedy decoding writes after `ids`."""
    written = list(ids)
    for _ in range(count):
        with torch.inference_mode():
            written.append(int(engine.model.network(input_ids=torch.tensor([written])).logits[0, -1].argmax()))
    return tuple(written[len(ids) :])


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "bloom"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("demos", [(), DEMOS])
def test_a_candidate_is_greedy_if_plain_decoding_writes_it(
    family: str, padded: bool, demos: tuple[int, ...], loaded: Loaded
) -> None:
    engine = PaddedEngine(loaded(family).model) if padded else loaded(family)
    memory = read(engine, demos) if demos else None
    queries = []
    for query in QUERIES:
        written = greedy(engine, (*demos, *query.prefix), 3)
        other = (*written[:2], (written[2] + 1) % 300)
        queries.append(TokenizedQuery(query.prefix, (written, other, written[:1])))
    results = engine.likelihoods(memory, with_passes_of(engine, 60).plan(queries))
    assert [[is_greedy for _, is_greedy in of_query] for of_query in results] == [[True, False, True]] * len(queries)


def test_the_likelihoods_are_the_scores(loaded: Loaded) -> None:
    engine = loaded("llama")
    memory, plan = read(engine, DEMOS), engine.plan(QUERIES)
    (sums,) = engine.score([memory], plan)
    likelihoods = engine.likelihoods(memory, plan)
    assert [[value for value, _ in of_query] for of_query in likelihoods] == [pytest.approx(each) for each in sums]
    assert engine.likelihoods(memory, engine.plan([])) == []


def test_a_model_whose_own_logits_are_used_tells_the_same(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded("gpt2")
    expected = engine.likelihoods(None, engine.plan(QUERIES))
    monkeypatch.setitem(engine.model.__dict__, "_head", None)
    for own, ours in zip(engine.likelihoods(None, engine.plan(QUERIES)), expected, strict=True):
        assert [is_greedy for _, is_greedy in own] == [is_greedy for _, is_greedy in ours]
        assert [value for value, _ in own] == pytest.approx([value for value, _ in ours], abs=1e-4)


def test_the_likeliest_token_is_found_in_every_slice_of_the_vocabulary(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded("llama")
    expected = engine.likelihoods(None, engine.plan(QUERIES))
    monkeypatch.setattr("deepthink_cli.engine.logits.SLICE", 50)
    assert [[flag for _, flag in each] for each in engine.likelihoods(None, engine.plan(QUERIES))] == [
        [flag for _, flag in each] for each in expected
    ]


def test_an_engine_that_does_not_tell_the_likeliest_tokens_says_so(llama: Engine) -> None:
    engine = Similarity(llama.tokenizer, llama.identity, llama.limits)
    with pytest.raises(InputError, match="use engine packed or padded"):
        engine.likelihoods(None, engine.plan(QUERIES))
