"""How much a pass may hold: measured on the device, and bounded by what its tensors take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import Models, read
from helpers.families import write_model
from queries import DEMOS

from deepthink_cli import Memory, load_model
from deepthink_cli.engine import budget
from deepthink_cli.engine.budget import best_tokens, byte_budget
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedEngine


@pytest.mark.parametrize(("free", "tokens"), [(2**40, 16384), (2**30, 4000), (0, 256)])
def test_on_cuda_the_tokens_of_a_pass_are_what_half_the_free_memory_holds(
    free: int, tokens: int, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_model(str(models("llama")))
    monkeypatch.setattr(LanguageModel, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2**40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)
    assert best_tokens(engine.model) == pytest.approx(tokens, rel=0.05)


def test_a_process_that_shares_a_gpu_counts_on_its_part_whatever_others_have_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 0.25)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2**30)
    for free in (2**36, 2**20):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 2**36))
        assert byte_budget(torch.device("cuda")) == 2**32  # half of 16 - 1 GiB, rounded down


def test_on_a_processor_a_wide_model_takes_fewer_tokens_a_pass(models: Models) -> None:
    engine = load_model(str(models("llama")))
    assert engine.batch_tokens == 1024
    engine.model.network.base_model.add_module("wide", torch.nn.Linear(1, 11_008, device="meta"))
    assert 700 < best_tokens(engine.model) < 800


def test_a_wide_head_and_attention_by_products_leave_room_for_fewer_tokens(models: Models) -> None:
    llama, capped = load_model(str(models("llama"))), load_model(str(models("gemma2")))
    wide = load_model(str(models("llama")))
    vars(wide.model)["_head"] = None  # the network's own logits, computed for every token
    vars(wide.model)["known_tokens"] = 2**20
    memory = read(llama, DEMOS)
    long = Memory(*(tuple(torch.zeros(2, 2**16, 8) for _ in range(2)) for _ in range(2)))
    cases = {
        "llama": (llama, memory),
        "head": (wide, memory),
        "products": (capped, long),
        "kernel": (llama, long),
    }
    most = {name: tokens_over(engine, memory) for name, (engine, memory) in cases.items()}
    assert most["head"] < most["llama"] == most["kernel"] > most["products"]


def test_masks_of_windows_leave_room_for_fewer_tokens(tmp_path: Path) -> None:
    plain = load_model(str(write_model(tmp_path / "plain", "mistral", sliding_window=None)))
    windowed = load_model(str(write_model(tmp_path / "windowed", "mistral")))
    memory = read(plain, DEMOS)
    assert tokens_over(windowed, memory) < tokens_over(plain, memory)


def tokens_over(engine: PackedEngine, memory: Memory) -> int:
    """The most tokens of a pass over the memory in 16 MiB."""
    bounded = PackedEngine(engine.model)
    bounded.batch_tokens, bounded.free = 2**20, 2**24
    return bounded.bounds(memory, 10)[0]


@pytest.mark.parametrize(("free", "kept"), [(2**30, True), (2**12, False)])
def test_a_float32_copy_of_the_head_is_kept_where_it_takes_a_small_share_of_the_memory(
    free: int, kept: bool, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "byte_budget", lambda device: free)
    head = load_model(str(models("llama")), dtype="bfloat16").model._head
    assert (head.copy_bytes == 0) == kept
    assert load_model(str(models("llama"))).model._head.copy_bytes == 0  # float32 needs none
