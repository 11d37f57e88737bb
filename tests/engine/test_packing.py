"""Packed rows over one memory: the same scores as whole prompts, whatever the candidates and the budget."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from deepthink_cli.engine.reading import Reading
from families import FAMILIES, write_model
from oracle import plain_scores
from torch import Tensor
from transformers.activations import NewGELUActivation

from deepthink_cli import Memory, load_model, score, scoring
from deepthink_cli.engine import attention, passes
from deepthink_cli.engine.activation import fused_activations
from deepthink_cli.engine.attention import over_memory
from deepthink_cli.engine.budget import found_tokens
from deepthink_cli.engine.choice import engine_of, read_each
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import PackedRow, lines, tree
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.scoring import prepare, score_each

DEMOS = tuple(range(3, 40))
ONE_A_ROW = {"gpt_neo", "bloom", "falcon", "falcon-alibi", "gptj", "mpt", "codegen", "deepseek_v3"}
SHARED = ((9,), (9, 10), (9, 10, 11), (9, 12), (13,))  # prefixes of each other, and a branch
UNEQUAL = ((20, 21, 22, 23), (24, 21))
QUERIES = [
    TokenizedQuery(tuple(range(50, 58)), SHARED),
    TokenizedQuery(tuple(range(60, 63)), UNEQUAL),
    TokenizedQuery((70,), ((5,),)),
    TokenizedQuery(tuple(range(80, 120)), SHARED[::-1]),
    TokenizedQuery(tuple(range(90, 98)), ((30,), (31,), (32,))),
]


def sums(model: LanguageModel, memory: Memory, queries: Sequence[TokenizedQuery], budget: int) -> list[float]:
    return [value for found in score(replace(model, batch_tokens=budget), memory, queries) for value in found.sums]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_scores_as_whole_prompts_do(family: str, models: Callable[[str], Path]) -> None:
    model = load_model(str(models(family)))
    memory = model.read(DEMOS)
    expected = [value for query in QUERIES for value in plain_scores(model, DEMOS, query)]
    for budget in (7, 50, 4096):  # shorter than an input, a few passes, one pass
        assert sums(model, memory, QUERIES, budget) == pytest.approx(expected, abs=1e-4)
    assert sums(model, memory, QUERIES[:1], 4096) == pytest.approx(expected[: len(SHARED)], abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_path_of_a_family_is_found_by_trying_it(family: str, models: Callable[[str], Path]) -> None:
    engine = engine_of(load_model(str(models(family))))
    assert engine.packed is (family not in ONE_A_ROW)
    assert not engine.packed or (engine.verdict.difference is not None and engine.verdict.difference < 1e-4)


def test_many_inputs_score_as_each_alone(llama: LanguageModel) -> None:
    pick = random.Random(0)
    queries = [TokenizedQuery(tuple(pick.choices(range(3, 300), k=1 + n % 9)), SHARED) for n in range(200)]
    memory = llama.read(DEMOS)
    together = score(llama, memory, queries)
    for number in range(0, 200, 23):
        assert score(llama, memory, [queries[number]])[0].sums == pytest.approx(together[number].sums, abs=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "bloom"])
def test_ten_thousand_inputs_score_as_one_does(family: str, models: Callable[[str], Path]) -> None:
    model = load_model(str(models(family)))
    memory = model.read(DEMOS)
    pick = random.Random(1)
    kinds = [SHARED, UNEQUAL, ((30,),), ((31,), (32, 33))]
    queries = [
        TokenizedQuery(tuple(pick.choices(range(3, 300), k=pick.randint(1, 6))), pick.choice(kinds))
        for _ in range(10_000)
    ]
    together = score(model, memory, queries)
    assert [len(found.sums) for found in together] == [len(query.answers) for query in queries]
    for number in range(0, 10_000, 997):
        assert together[number].sums == pytest.approx(plain_scores(model, DEMOS, queries[number]), abs=1e-4)


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


@pytest.mark.parametrize("family", ["llama", "gemma2", "bloom"])
def test_one_plan_scores_several_memories(family: str, models: Callable[[str], Path]) -> None:
    model = load_model(str(models(family)))
    memories = [model.read(DEMOS), model.read(DEMOS[:11])]
    together = score_each(model, memories, prepare(model, QUERIES))
    assert together == [score(model, memory, QUERIES) for memory in memories]


@pytest.mark.parametrize("family", ["llama", "gpt_neo"])
def test_without_demonstrations_the_query_is_read_alone(family: str, models: Callable[[str], Path]) -> None:
    model = load_model(str(models(family)))
    read = model.read(DEMOS)
    empty = Memory(tuple(keys[:, :0] for keys in read.keys), tuple(values[:, :0] for values in read.values))
    expected = [value for query in QUERIES for value in plain_scores(model, (), query)]
    assert sums(model, empty, QUERIES, 4096) == pytest.approx(expected, abs=1e-4)


def test_half_precision_is_packed_too(models: Callable[[str], Path]) -> None:
    model = load_model(str(models("llama")), dtype="bfloat16")
    assert engine_of(model).packed
    found = sums(model, model.read(DEMOS), QUERIES, 4096)
    full = load_model(str(models("llama")))
    assert found == pytest.approx(sums(full, full.read(DEMOS), QUERIES, 4096), rel=0.05, abs=0.2)


def test_a_deep_model_in_half_precision_is_packed_for_all_its_rounding(tmp_path: Path) -> None:
    model = load_model(str(write_model(tmp_path / "deep", "llama", num_hidden_layers=40)), dtype="bfloat16")
    assert engine_of(model).packed


@pytest.mark.parametrize(("family", "inner"), [("gpt2", "c_proj"), ("llama", "down_proj"), ("opt", "fc2")])
def test_the_last_feed_forward_block_runs_only_where_scores_are_read(
    family: str, inner: str, models: Callable[[str], Path]
) -> None:
    model = load_model(str(models(family)))
    memory = model.read(DEMOS)
    engine_of(model)
    fed: dict[str, int] = {}
    for name, module in model.network.base_model.named_modules():
        if name.endswith(inner) and "attn" not in name:
            module.register_forward_pre_hook(lambda _, given, name=name: fed.update({name: given[0].shape[-2]}))
    score(model, memory, QUERIES[:2])  # 8 + 2 tokens and 3 + 4, read at 1 + 2 and 1 + 4
    assert list(fed.values()) == [17, 8]


def test_a_packed_model_computes_gelu_in_one_kernel_and_keeps_its_own_modules(
    models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(models("gpt2")))
    own = [module for module in model.network.modules() if isinstance(module, NewGELUActivation)]
    memory = model.read(DEMOS)
    expected = score(model, memory, QUERIES)
    with monkeypatch.context() as broken:
        broken.setattr(NewGELUActivation, "forward", None)
        assert score(model, memory, QUERIES) == expected
        assert read_each(model, [Reading(DEMOS)])[0].length == len(DEMOS)
        with pytest.raises(InputError, match="too long"), fused_activations(model.network):
            raise InputError("too long")
    assert [module for module in model.network.modules() if isinstance(module, NewGELUActivation)] == own
    assert own


@pytest.mark.parametrize("causal", [False, True])
def test_what_the_cuda_kernel_is_given_and_gives_fits_around_it(causal: bool) -> None:
    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: None,
        with_lse: bool,
        dropout: float,
        causal: bool,
        *,
        scale: float,
    ) -> tuple[Tensor | None, ...]:
        assert query.shape[:2] == key.shape[:2] == value.shape[:2]
        assert (bias, with_lse, dropout) == (None, True, 0.0)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scale
        )
        return out, torch.nn.functional.pad(lse, (0, -lse.shape[2] % 32), value=torch.nan), None, None

    query, key, value = torch.randn(2, 6, 7, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    found = attention._by_efficient_kernel(kernel, query, key, value, causal, 0.3)
    expected = attention._by_products(query, key, value, None, causal, 0.3, None)
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(("free", "tokens"), [(2**40, 16384), (2**30, 4000), (0, 256)])
def test_on_cuda_the_tokens_of_a_pass_are_what_half_the_free_memory_holds(
    free: int, tokens: int, models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(models("llama")))
    monkeypatch.setattr(LanguageModel, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2**40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    assert found_tokens(model) == pytest.approx(tokens, rel=0.05)


def test_on_a_processor_a_wide_model_takes_fewer_tokens_a_pass(models: Callable[[str], Path]) -> None:
    model = load_model(str(models("llama")))
    assert engine_of(model).batch_tokens == 1024
    model.network.base_model.add_module("wide", torch.nn.Linear(1, 11_008, device="meta"))
    assert 700 < found_tokens(model) < 800


def test_a_network_that_ignores_the_memory_is_not_packed(
    models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "over_memory", lambda *_: nullcontext())
    engine = engine_of(load_model(str(models("llama"))))
    assert not engine.packed
    assert engine.verdict.difference is not None
    assert engine.verdict.difference > 0.1


def test_the_models_own_attention_comes_back_after_an_error(llama: LanguageModel) -> None:
    before = llama.network.config._attn_implementation
    with pytest.raises(ValueError, match="not enough values"), over_memory(llama.network, []):
        llama.network(input_ids=torch.tensor([[5, 6]]))
    assert llama.network.config._attn_implementation == before


def test_a_pass_that_does_not_fit_the_device_is_halved(
    models: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(models("llama")))
    memory = model.read(DEMOS)
    expected = sums(model, memory, QUERIES, 4096)
    whole = scoring.score_rows

    def small(model: LanguageModel, memories: Sequence[Memory], rows: Sequence[PackedRow], packed: bool) -> object:
        if len(rows) > 1:
            raise torch.OutOfMemoryError
        return whole(model, memories, rows, packed)

    monkeypatch.setattr(scoring, "score_rows", small)
    assert sums(model, memory, QUERIES, 4096) == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(scoring, "score_rows", lambda *_: small(model, [], [*range(2)], True))
    with pytest.raises(torch.OutOfMemoryError):
        score(model, memory, QUERIES[:1])
