"""The packed engine: it changes nothing in the network, and runs no more of it than the scores need."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import Loaded, Models, read
from helpers.families import write_model
from queries import DEMOS, NOT_PACKED, QUERIES, SHARED
from torch import Tensor
from transformers.activations import NewGELUActivation

from deepthink_cli import load_model, score
from deepthink_cli.engine import attention
from deepthink_cli.engine.attention import over_memory
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.packed import PackedEngine, fused_activations
from deepthink_cli.errors import InputError
from deepthink_cli.events import Detail, Note


def test_a_deep_model_in_half_precision_is_packed_for_all_its_rounding(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "deep", "llama", num_hidden_layers=40)
    assert isinstance(load_model(str(folder), dtype="bfloat16"), PackedEngine)


@pytest.mark.parametrize(("family", "inner"), [("gpt2", "c_proj"), ("llama", "down_proj"), ("opt", "fc2")])
def test_the_last_feed_forward_block_runs_only_where_scores_are_read(family: str, inner: str, loaded: Loaded) -> None:
    engine = loaded(family)
    memory = read(engine, DEMOS)
    fed: dict[str, int] = {}
    for name, module in engine.model.network.base_model.named_modules():
        if name.endswith(inner) and "attn" not in name:
            module.register_forward_pre_hook(lambda _, inputs, name=name: fed.update({name: inputs[0].shape[-2]}))
    score(engine, memory, QUERIES[:2])  # 8 + 2 tokens and 3 + 4, read at 1 + 2 and 1 + 4
    assert list(fed.values()) == [17, 8]


def test_gelu_is_computed_in_one_kernel_and_the_network_keeps_its_own_modules(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_model(str(models("gpt2")))
    network = engine.model.network
    before = [module for module in network.modules() if isinstance(module, NewGELUActivation)]
    memory = engine.model.read(DEMOS)
    expected = score(engine, memory, QUERIES)
    with monkeypatch.context() as broken:
        broken.setattr(NewGELUActivation, "forward", None)
        assert score(engine, memory, QUERIES) == expected
        assert read(engine, DEMOS).length == len(DEMOS)
        with pytest.raises(InputError, match="too long"), fused_activations(network):
            raise InputError("too long")
    assert [module for module in network.modules() if isinstance(module, NewGELUActivation)] == before
    assert before


@pytest.mark.parametrize("causal", [False, True])
def test_what_the_cuda_kernel_is_given_and_gives_fits_around_it(causal: bool) -> None:
    def kernel(query: Tensor, key: Tensor, value: Tensor, *rest: object, scale: float) -> tuple[Tensor | None, ...]:
        assert query.shape[:2] == key.shape[:2] == value.shape[:2]
        assert rest == (None, True, 0.0, causal)  # bias, whether sums are given, dropout
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scale
        )
        return out, torch.nn.functional.pad(lse, (0, -lse.shape[2] % 32), value=torch.nan), None, None

    query, key, value = torch.randn(2, 6, 7, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    by_kernel = attention.Attention(0.3).by_efficient_kernel(kernel, query, key, value, causal)
    expected = attention.Attention(0.3).by_products(query, key, value, None, causal)
    for actual, right in zip(by_kernel, expected, strict=True):
        torch.testing.assert_close(actual, right)


def test_the_networks_own_attention_comes_back_after_an_error(llama: BatchedEngine) -> None:
    network = llama.model.network
    before = network.config._attn_implementation
    with pytest.raises(ValueError, match="not enough values"), over_memory(network, []):
        network(input_ids=torch.tensor([[5, 6]]))
    assert network.config._attn_implementation == before


def test_a_plan_has_one_row_a_query_with_its_candidates_as_branches(llama: BatchedEngine) -> None:
    rows = llama.plan(QUERIES).rows
    assert sorted(row.query for row in rows) == list(range(len(QUERIES)))
    assert len(rows[0]) == len(QUERIES[3].prefix) + 2  # of SHARED, only 9 and 9, 10 are continued
    assert len(SHARED) == len({candidate for _, _, candidate in rows[0].asked})


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
    assert engine.told is Note
    asked_for = load_model(str(models(family)), engine="padded")
    assert (asked_for.description, asked_for.told) == ("padded engine", Detail)
