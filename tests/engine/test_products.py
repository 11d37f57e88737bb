"""Float32 products by oneDNN: the same numbers, for the layers, passes and processors that gain by them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from conftest import Models, read, write_rows
from engine.queries import QUERIES
from helpers.said import Captured, output
from torch import nn
from transformers.pytorch_utils import Conv1D

from deepthink_cli import load_model, score
from deepthink_cli.cli.main import run
from deepthink_cli.engine import products
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.products import linear, reorder_weights, usual_products_are_slow
from deepthink_cli.model.spec import FEW

DEMOS = tuple(range(3, 40))
ALL = 10**9

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this build of torch has no oneDNN"
)


def reordered(module: nn.Module) -> list[nn.Module]:
    """The layers that multiply by oneDNN."""
    return [layer for layer in module.modules() if hasattr(layer, "reordered")]


@pytest.mark.parametrize(("family", "layer"), [("llama", nn.Linear), ("gpt2", Conv1D), ("bloom", nn.Linear)])
def test_memories_and_scores_are_those_of_the_usual_products(
    family: str, layer: type[nn.Module], models: Models
) -> None:
    engine = load_model(str(models(family)))
    assert isinstance(engine, BatchedEngine)
    memory = read(engine, DEMOS)
    expected = score(engine, memory, QUERIES)
    assert reorder_weights(engine.model.network.base_model, ALL, fewest=1) > 0
    assert {isinstance(each, layer) for each in reordered(engine.model.network)} == {True}
    again = read(engine, DEMOS)
    for ours, usual in zip((*again.keys, *again.values), (*memory.keys, *memory.values), strict=True):
        torch.testing.assert_close(ours, usual, atol=1e-5, rtol=1e-4)
    for scores, usual_scores in zip(score(engine, memory, QUERIES), expected, strict=True):
        assert scores.sums == pytest.approx(usual_scores.sums, abs=1e-4)


def test_gradients_are_those_of_the_usual_products(models: Models) -> None:
    engine = load_model(str(models("llama")))
    assert isinstance(engine, BatchedEngine)
    hidden = torch.randn(1, 3, engine.model.network.config.hidden_size, requires_grad=True)
    layer = engine.model.network.model.layers[0].mlp.gate_proj
    (expected,) = torch.autograd.grad(layer(hidden).sum(), hidden)
    assert reorder_weights(engine.model.network.base_model, ALL, fewest=1) > 0
    assert torch.equal(torch.autograd.grad(layer(hidden).sum(), hidden)[0], expected)


@torch.inference_mode()
def test_one_token_and_other_dtypes_use_the_usual_product() -> None:
    layer = nn.Sequential(nn.Linear(64, 48))
    one, usual = torch.randn(1, 1, 64), layer[0].weight
    expected = nn.functional.linear(one, usual, layer[0].bias)
    assert reorder_weights(layer, ALL, fewest=1) == usual.nbytes
    assert torch.equal(layer(one), expected)
    half = deepcopy(layer).to(torch.bfloat16)  # a copy, as the measurement of bfloat16's gain makes one
    assert half(one.expand(1, 5, 64).bfloat16()).dtype == torch.bfloat16


@torch.inference_mode()
def test_a_product_without_a_copy_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "usual_products_are_slow", lambda: True)
    hidden, weight, bias = torch.randn(5, 64), torch.randn(300, 64)[100:], torch.randn(200)
    torch.testing.assert_close(linear(hidden, weight, bias), hidden @ weight.T + bias, atol=1e-5, rtol=1e-4)


def test_weights_that_take_too_much_memory_or_are_small_stay_as_they_are() -> None:
    network = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
    size = network[0].weight.nbytes
    assert reorder_weights(network, size - 1, fewest=64 * 64) == 0
    assert reordered(network) == []
    assert reorder_weights(network, size, fewest=64 * 64) == size
    assert reordered(network) == [network[0]]


def test_a_layer_with_nan_keeps_its_own_product() -> None:
    network = nn.Sequential(nn.Linear(64, 64))
    with torch.no_grad():
        network[0].weight[3, 3] = float("nan")
    assert reorder_weights(network, ALL, fewest=1) == 0
    assert reordered(network) == []


@pytest.mark.parametrize(
    ("capability", "cpuinfo", "slow"),
    [
        ("AVX512", "vendor_id\t: AuthenticAMD\n", True),
        ("AVX512", "vendor_id\t: GenuineIntel\n", False),
        ("AVX512", None, False),
        ("AVX2", "vendor_id\t: AuthenticAMD\n", False),
    ],
)
def test_the_usual_products_are_slow_on_amd_with_avx512(
    capability: str, cpuinfo: str | None, slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        file.write_text(cpuinfo)
    monkeypatch.setattr(products, "_CPUINFO", file)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert usual_products_are_slow() is slow


@pytest.mark.parametrize("slow", [True, False])
def test_a_loaded_model_says_whether_its_products_are_those_of_onednn(
    slow: bool, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "usual_products_are_slow", lambda: slow)
    monkeypatch.setattr(reorder_weights, "__defaults__", (1,))
    engine = load_model(str(models("llama")))
    assert engine.description.endswith("; float32 products by oneDNN") is slow


@pytest.mark.usefixtures("loaded_anew")
@pytest.mark.parametrize(("count", "copied"), [(FEW - 1, False), (FEW, True)])
@pytest.mark.parametrize("command", ["predict", "eval"])
def test_weights_are_copied_where_there_are_rows_enough(
    command: str,
    count: int,
    copied: bool,
    models: Models,
    demos: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "usual_products_are_slow", lambda: True)
    monkeypatch.setattr(reorder_weights, "__defaults__", (1,))
    memory, rows = str(tmp_path / "mem.safetensors"), str(tmp_path / "rows.jsonl")
    output(capsys, "think", str(demos), "-m", str(models("llama")), "-T", "1", "-q", "-o", memory)
    write_rows(Path(rows), [{"review": "fine", "sentiment": "positive"}] * count)
    assert run([command, memory, rows, "-v"]) == 0
    assert ("float32 products by oneDNN" in capsys.readouterr().err) is copied
