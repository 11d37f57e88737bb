"""Hidden states and scores of queries from one pass, after a memory or after nothing."""

from __future__ import annotations

import pytest
import torch
from conftest import Loaded, read
from queries import DEMOS, QUERIES, with_passes_of
from test_minimal_engine import Similarity
from torch import Tensor

from deepthink_cli import Engine
from deepthink_cli.engine.base import ScoringPlan
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery

TEMPLATE = (7, 8)  # tokens that all queries begin with
SHARING = [TokenizedQuery((*TEMPLATE, *query.prefix), query.answers) for query in QUERIES]


def plain_states(engine: BatchedEngine, ids: tuple[int, ...]) -> Tensor:
    """The inputs of the output embedding (S, W) in one plain pass over whole prompts, without a cache."""
    seen: list[Tensor] = []
    hook = engine.model.network.get_output_embeddings().register_forward_pre_hook(
        lambda _, given: seen.append(given[0])
    )
    with torch.inference_mode():
        engine.model.network(input_ids=torch.tensor([ids]), use_cache=False)
    hook.remove()
    return seen[0][0].float()


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "bloom"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("demos", [(), DEMOS])
def test_hidden_states_are_those_before_the_head_of_a_plain_pass(
    family: str, padded: bool, demos: tuple[int, ...], loaded: Loaded
) -> None:
    engine = PaddedEngine(loaded(family).model) if padded else loaded(family)
    memory = read(engine, demos) if demos else None
    for queries, shared in ((QUERIES, 0), (SHARING, len(TEMPLATE))):
        plan = with_passes_of(engine, 60).plan(queries)
        at_label, everywhere = engine.observe(memory, plan), engine.observe(memory, plan, every_token=True)
        for query, one, every in zip(queries, at_label, everywhere, strict=True):
            expected = plain_states(engine, (*demos, *query.prefix))
            torch.testing.assert_close(one.hidden, expected[-1], rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(every.hidden, expected[len(demos) + shared :], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "bloom", "opt"])
@pytest.mark.parametrize("padded", [False, True])
def test_states_after_layers_are_those_of_transformers(family: str, padded: bool, loaded: Loaded) -> None:
    engine = PaddedEngine(loaded(family).model) if padded else loaded(family)
    memory, depth = read(engine, DEMOS), len(engine.model.one_token.keys)
    layers = sorted({1, depth})
    found = engine.observe(memory, with_passes_of(engine, 60).plan(SHARING), layers=layers)
    for query, each in zip(SHARING, found, strict=True):
        ids = torch.tensor([[*DEMOS, *query.prefix]])
        with torch.no_grad():
            out = engine.model.network.base_model(input_ids=ids, output_hidden_states=True, use_cache=False)
        states = [*out.hidden_states[1:-1], out.last_hidden_state]
        expected = torch.stack([states[layer - 1][0, -1] for layer in layers]).float()
        torch.testing.assert_close(each.hidden, expected, rtol=1e-3, atol=1e-4)


def test_a_model_whose_own_logits_are_used_is_observed_at_its_head(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded("gpt2")
    expected = engine.observe(None, engine.plan(QUERIES))
    monkeypatch.setitem(engine.model.__dict__, "head", None)
    for own, ours in zip(engine.observe(None, engine.plan(QUERIES)), expected, strict=True):
        torch.testing.assert_close(own.hidden, ours.hidden)
        assert own.sums == pytest.approx(ours.sums, abs=1e-4)


def test_an_engine_without_hidden_states_says_so(llama: Engine) -> None:
    engine = Similarity(llama.tokenizer, llama.identity, llama.limits)
    with pytest.raises(InputError, match="gives no hidden states; use engine packed or padded"):
        engine.observe(None, engine.plan(QUERIES))


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
    results = engine.observe(memory, with_passes_of(engine, 60).plan(queries), greedy=True)
    assert [each.greedy for each in results] == [(True, False, True)] * len(queries)


def test_observed_scores_are_those_of_scoring(loaded: Loaded) -> None:
    engine = loaded("llama")
    memory, plan = read(engine, DEMOS), engine.plan(QUERIES)
    (sums,) = engine.score([memory], plan)
    for observation, expected in zip(engine.observe(memory, plan), sums, strict=True):
        assert observation.sums == pytest.approx(expected, abs=1e-5)
        assert observation.greedy == ()
    assert engine.observe(memory, engine.plan([])) == []


def test_a_model_whose_own_logits_are_used_tells_the_same(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = loaded("gpt2")
    expected = engine.observe(None, engine.plan(QUERIES), greedy=True)
    monkeypatch.setitem(engine.model.__dict__, "head", None)
    for own, ours in zip(engine.observe(None, engine.plan(QUERIES), greedy=True), expected, strict=True):
        assert own.greedy == ours.greedy
        assert own.sums == pytest.approx(ours.sums, abs=1e-4)


def test_the_likeliest_token_is_found_in_every_slice_of_the_vocabulary(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded("llama")
    expected = engine.observe(None, engine.plan(QUERIES), greedy=True)
    monkeypatch.setattr("deepthink_cli.engine.logits.SLICE", 50)
    found = engine.observe(None, engine.plan(QUERIES), greedy=True)
    assert [each.greedy for each in found] == [each.greedy for each in expected]


def test_a_plan_of_another_engine_has_no_rows_and_is_made_anew(llama: BatchedEngine) -> None:
    memory, plan = read(llama, DEMOS), llama.plan(QUERIES)
    without_rows = ScoringPlan(plan.queries)
    for own, other in zip(llama.observe(memory, plan), llama.observe(memory, without_rows), strict=True):
        assert own.sums == other.sums
