"""Memories on disk: the same bytes for the same inputs, and nothing damaged or foreign ever loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Models, readings_of
from safetensors.torch import load_file, save_file

from deepthink_cli import (
    DemonstrationSet,
    Example,
    Gate,
    Memory,
    Method,
    load_memory,
    load_model,
    save_memory,
    think,
    tokenize_demonstrations,
)
from deepthink_cli.artifact import files as store
from deepthink_cli.artifact.container import KEY
from deepthink_cli.artifact.format import content_digest, metadata_json
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import DeepThinkError, InputError


@pytest.fixture
def readings(llama: Engine, reviews: DemonstrationSet) -> list[Memory]:
    return list(readings_of(llama, reviews, Method(3)))


def test_a_memory_comes_back_bit_for_bit(readings: list[Memory], tmp_path: Path) -> None:
    save_memory(readings, tmp_path / "mem.safetensors")
    for memory in readings:
        loaded = load_memory(tmp_path / "mem.safetensors", memory.iteration)
        assert all(map(torch.equal, (*loaded.keys, *loaded.values), (*memory.keys, *memory.values)))
        assert (loaded.provenance, loaded.drift) == (memory.provenance, memory.drift)


def test_values_that_are_not_finite_are_neither_saved_nor_loaded(readings: list[Memory], tmp_path: Path) -> None:
    broken = replace(readings[-1], keys=(readings[-1].keys[0] * float("nan"), *readings[-1].keys[1:]))
    path = tmp_path / "mem.safetensors"
    with pytest.raises(DeepThinkError, match="NaN or infinite"):
        save_memory(broken, path)
    assert list(tmp_path.iterdir()) == []
    header = save_memory(readings[-1], path)
    tensors = {name: tensor * float("inf") for name, tensor in load_file(path).items()}
    described = {name: ("F32", tuple(tensor.shape)) for name, tensor in tensors.items()}
    signed = content_digest(header.metadata, described, lambda name: tensors[name].numpy().tobytes())
    save_file(tensors, path, metadata={KEY: metadata_json(replace(header.metadata, sha256=signed))})
    with pytest.raises(InputError, match="NaN or infinite"):
        load_memory(path)


def test_memories_of_different_runs_do_not_share_a_file(
    llama: Engine, reviews: DemonstrationSet, readings: list[Memory], tmp_path: Path
) -> None:
    other = next(think(llama, tokenize_demonstrations(llama.tokenizer, reviews), Method(update=Gate(0.5))))
    with pytest.raises(InputError, match="different runs"):
        save_memory([other, readings[1]], tmp_path / "mem.safetensors")


def test_an_iteration_is_saved_once(readings: list[Memory], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^iterations \[1, 2, 2\]: one is duplicated; give each once$"):
        save_memory([readings[1], readings[0], readings[1]], tmp_path / "mem.safetensors")


def test_a_memory_that_cannot_be_read_back_does_not_take_the_old_ones_place(
    readings: list[Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mem.safetensors"
    save_memory(readings[0], path)
    before = path.read_bytes()

    def refuse(path: Path) -> None:
        raise InputError(f"{path}: damaged")

    monkeypatch.setattr(store, "read_header", refuse)
    with pytest.raises(InputError, match="damaged"):
        save_memory(readings[1], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_size_of_the_header_is_known_before_it_is_written(
    llama: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = DemonstrationSet.of([Example('"' * 300, "positive"), Example("ä", "negative")], "{text}: {label}")
    memory = next(readings_of(llama, quoted, Method(1)))
    header = save_memory(memory, tmp_path / "mem.safetensors")
    monkeypatch.setattr(store, "MAX_HEADER", header.start - 9)  # a byte less than it takes
    with pytest.raises(DeepThinkError, match="the memory's metadata would pass"):
        save_memory(memory, tmp_path / "other.safetensors")


def test_an_iteration_that_was_not_kept_is_named(readings: list[Memory], tmp_path: Path) -> None:
    save_memory([readings[0], readings[2]], tmp_path / "mem.safetensors")
    with pytest.raises(InputError, match=r"iteration 2: .* keeps 1, 3"):
        load_memory(tmp_path / "mem.safetensors", 2)


def test_one_iteration_is_loaded(readings: list[Memory], tmp_path: Path) -> None:
    save_memory(readings, tmp_path / "mem.safetensors")
    with pytest.raises(InputError, match="iteration all: one iteration is needed"):
        load_memory(tmp_path / "mem.safetensors", "all")  # type: ignore[arg-type]


def test_keys_and_values_may_have_different_sizes(models: Models, reviews: DemonstrationSet, tmp_path: Path) -> None:
    engine = load_model(str(models("deepseek_v3")))
    memory = next(readings_of(engine, reviews))
    assert memory.keys[0].shape != memory.values[0].shape
    save_memory(memory, tmp_path / "mem.safetensors")
    loaded = load_memory(tmp_path / "mem.safetensors")
    assert all(map(torch.equal, (*loaded.keys, *loaded.values), (*memory.keys, *memory.values)))
