"""A memory in 8 or 4 bits is a memory: everything reads it, and nothing damaged or foreign loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import readings_of
from helpers.by_hand import changed, parts, write_parts
from safetensors import safe_open
from safetensors.torch import load_file

from deepthink_cli import DemonstrationSet, Method, evaluate, load_memory, predict, save_memory
from deepthink_cli.artifact.files import read_memories
from deepthink_cli.artifact.format import Header, read_artifact, summary
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.memories.quantize import save_quantized

Change = Any
only_8_bits = pytest.mark.parametrize("small", [8], indirect=True)


@pytest.fixture
def plain(llama: Engine, reviews: DemonstrationSet, tmp_path: Path) -> Header:
    readings = list(readings_of(llama, reviews, Method(3)))
    return save_memory([readings[0], readings[2]], tmp_path / "mem.safetensors")


@pytest.fixture(params=[8, 4])
def small(request: pytest.FixtureRequest, plain: Header) -> Header:
    return save_quantized(plain, request.param, Path(plain.path).with_name("small.safetensors"))


def refusal(path: str) -> str:
    with pytest.raises(InputError) as caught:
        load_memory(path)
    assert len(caught.value.messages) == 1
    return str(caught.value)


def test_every_iteration_comes_back_close_to_what_it_was(plain: Header, small: Header) -> None:
    bits = 8 if small.metadata.dtypes["memory"] == "int8" else 4
    for before, after in zip(read_memories(plain), read_memories(small), strict=True):
        assert (before.iteration, before.drift) == (after.iteration, after.drift)
        for old, new in zip((*before.keys, *before.values), (*after.keys, *after.values), strict=True):
            assert (new.dtype, new.shape) == (torch.float32, old.shape)
            assert (new - old).norm() <= old.norm() * {8: 0.01, 4: 0.2}[bits]


def test_the_file_says_what_it_is_and_where_it_comes_from(plain: Header, small: Header) -> None:
    metadata, quantized = small.metadata, small.metadata.quantized
    assert quantized.source_sha256 == plain.metadata.sha256
    assert metadata.dtypes == {**plain.metadata.dtypes, "memory": quantized.dtype}
    assert summary(small)["shape"] == summary(plain)["shape"]
    assert summary(small)["quantized"]["bits"] == quantized.bits
    assert (small.layers, small.shape(0, "keys")) == (plain.layers, plain.shape(0, "keys"))
    assert metadata.versions == plain.metadata.versions
    read_artifact(small)


def test_it_is_a_safetensors_file_with_aligned_tensors(small: Header) -> None:
    tensors = load_file(small.path)
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"torch.uint8", "torch.bfloat16"}
    with safe_open(small.path, "pt") as file:
        assert list(file.metadata()) == ["deepthink"]
    assert all(entry.begin % 2 == 0 for entry in small.tensors.values() if entry.dtype == "BF16")


def test_the_same_memory_gives_the_same_bytes(plain: Header, small: Header) -> None:
    quantized = small.metadata.quantized
    again = save_quantized(plain, quantized.bits, Path(plain.path).with_name("again.safetensors"))
    assert Path(again.path).read_bytes() == Path(small.path).read_bytes()


def test_rows_are_labelled_and_evaluated_as_with_any_memory(llama: Engine, small: Header, demos: Path) -> None:
    labels = list(predict(llama, load_memory(small.path), ["a fine film"]))
    assert labels[0].label in ("positive", "negative")
    report = evaluate(small.path, demos, engine=llama)
    assert sorted(report.evaluation.results) == [1, 3]


def test_a_quantized_memory_is_not_quantized_again(small: Header, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is int\d already; quantize the float32 memory that it was made from"):
        save_quantized(small, 8, tmp_path / "twice.safetensors")
    assert not (tmp_path / "twice.safetensors").exists()


def test_dequantized_numbers_are_not_saved_as_if_they_were_thought(small: Header, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"this memory is int\d; copy its file"):
        save_memory(load_memory(small.path), tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("suffix", "number", "reason"),
    [
        ("scale", b"\0\0", "has values that are not finite and positive"),
        ("scale", b"\xc0\x7f", "has values that are not finite and positive"),
        ("low", b"\xc0\x7f", "has values that are not finite"),
    ],
    ids=["zero", "nan", "low nan"],
)
@only_8_bits
def test_signed_ranges_that_stand_for_no_number_are_refused(
    small: Header, suffix: str, number: bytes, reason: str
) -> None:
    metadata, entries, body = parts(small.path)
    name = "iteration.3.layer.1.values"
    start = entries[f"{name}.{suffix}"]["data_offsets"][0]
    body[start : start + 2] = number
    write_parts(Path(small.path), metadata, entries, body)
    assert refusal(small.path) == f"{small.path}: damaged: {name}.{suffix} {reason}; quantize again"


def test_ranges_that_pass_float32_together_are_refused(small: Header) -> None:
    metadata, entries, body = parts(small.path)
    for suffix in ("low", "scale"):
        start, end = entries[f"iteration.3.layer.0.keys.{suffix}"]["data_offsets"]
        body[start:end] = b"\x7f\x7f" * ((end - start) // 2)
    write_parts(Path(small.path), metadata, entries, body)
    assert "layer 0's keys of iteration 3 hold NaN or infinite values" in refusal(small.path)


def in_metadata(*place: str, to: Any) -> Change:
    return lambda metadata, entries: metadata.update(changed(metadata, place, to))


def in_entry(name: str, **fields: Any) -> Change:
    return lambda metadata, entries: entries[f"iteration.1.layer.0.{name}"].update(fields)


def without(name: str) -> Change:
    return lambda metadata, entries: entries.pop(f"iteration.1.layer.0.{name}")


def gone(metadata: dict[str, Any], entries: dict[str, Any]) -> None:
    del metadata["quantized"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (in_metadata("quantized", "bits", to=2), "damaged metadata: quantized.bits: is not 8 or 4"),
        (in_metadata("quantized", "group", to=1), "not BF16 ["),
        (in_metadata("quantized", "group", to="32"), "its header is not as deepthink think writes it"),
        (in_metadata("quantized", "zero", to=1), "damaged metadata: quantized.zero: no such field"),
        (in_metadata("quantized", to={}), "damaged metadata: quantized.bits: is missing; add it"),
        (in_metadata("dtypes", "memory", to="float32"), "damaged metadata: dtypes.memory: float32 is not int"),
        (gone, " is not float32"),
        (without("keys.low"), "damaged: its tensors are not those of iterations [1, 3]"),
        (in_entry("keys", dtype="I8"), "damaged: iteration.1.layer.0.keys is I8 "),
        (in_entry("keys.scale", dtype="F16"), "damaged: iteration.1.layer.0.keys.scale is F16 "),
        (
            in_entry("keys.scale", shape=[2, 8, 3]),
            "damaged: iteration.1.layer.0.keys.scale is BF16 [2, 8, 3], not BF16 [",
        ),
        (in_entry("values", shape=[2, 7, 8]), "damaged: iteration.1.layer.0.values is U8 [2, 7, 8], not U8 (heads, "),
        (in_entry("keys", data_offsets=[0, 4]), "damaged: the bytes of "),
    ],
)
@only_8_bits
def test_a_signed_file_of_another_form_is_refused(small: Header, change: Change, reason: str) -> None:
    metadata, entries, body = parts(small.path)
    change(metadata, entries)
    write_parts(Path(small.path), metadata, entries, body)
    assert reason in refusal(small.path)


def test_a_file_of_float32_has_no_room_for_ranges(plain: Header) -> None:
    metadata, entries, body = parts(plain.path)
    metadata["quantized"] = {"bits": 8, "group": 32, "source_sha256": "d" * 64}
    metadata["dtypes"]["memory"] = "int8"
    write_parts(Path(plain.path), metadata, entries, body)
    assert "damaged: its tensors are not those of iterations [1, 3]" in refusal(plain.path)
