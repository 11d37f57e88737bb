"""A memory takes the place of the keys and values in a state of llama.cpp, if they are of the same tokens and model."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.devices import FIRST, Devices
from helpers.llama_states import server_tokens, state
from hypothesis import given
from hypothesis import strategies as some

from deepthink_cli import Memory
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.exports.llama_cpp import (
    SequenceState,
    agreement,
    check_tokens,
    parse_state,
    read_state,
    write_state,
)

TOKENS = (1, 7, 7, 3)
GOLDEN = "71736767040000000400000001000000070000000700000003000000010000000400000000000000010000000000000001000000"


def memory(seed: int, layers: int = 2, heads: int = 2, size: int = 4, length: int = 4) -> Memory:
    """A random memory of few tokens."""
    torch.manual_seed(seed)
    keys, values = (tuple(torch.randn(heads, length, size) for _ in range(layers)) for _ in range(2))
    return Memory(keys, values)


ONE, FIVE = memory(1), memory(5)
FORMS: list[dict[str, Any]] = [
    {"version": version, "kind": kind, "norm": norm, "transposed": transposed}
    for version in (2, 3, 4)
    for kind in ("f32", "f16", "bf16")
    for norm, transposed in ((True, False), (False, True))
]


def saved(data: bytes) -> SequenceState:
    """A state that was read."""
    return parse_state(data, "saved")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
def test_the_new_state_is_the_one_that_llama_cpp_would_write_of_the_memory(
    form: dict[str, Any], tmp_path: Path
) -> None:
    before = saved(state(ONE, TOKENS, **form))
    check_tokens(before, TOKENS)
    compared = agreement(before, ONE)
    assert compared.paired == form["norm"]
    assert max(compared.keys, compared.values) <= 0.01
    write_state(FIVE, before, compared.paired, tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == state(FIVE, TOKENS, **form)


def test_a_memory_that_was_read_on_another_device_is_compared_and_written(tmp_path: Path) -> None:
    before = saved(state(ONE, TOKENS))
    with Devices():
        elsewhere = [each.copy().to([FIRST, FIRST]) for each in (ONE, FIVE)]
        compared = agreement(before, elsewhere[0])
        write_state(elsewhere[1], before, compared.paired, tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == state(FIVE, TOKENS)


def test_the_bytes_of_a_tiny_state_are_known() -> None:
    ramp = torch.arange(8.0).view(1, 4, 2)
    data = state(Memory((ramp,), (ramp + 8,)), TOKENS)
    assert data[:52].hex() == GOLDEN
    assert hashlib.sha256(data).hexdigest() == "32fc2944ffe35b7d7ebae2150b645953c5f5d31c73b36988aa05b9f100b368a5"
    parsed = parse_state(data, "saved")
    assert (parsed.tokens, parsed.positions) == (TOKENS, (0, 1, 2, 3))
    assert (parsed.keys[0].begin, parsed.values[0].end) == (len(data) - 76, len(data))


def test_tokens_as_the_server_writes_them_are_read() -> None:
    assert parse_state(state(ONE, server_tokens(TOKENS)), "saved").tokens == TOKENS


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    (tmp_path / "saved").write_bytes(state(ONE, TOKENS))
    assert read_state(tmp_path / "saved").tokens == TOKENS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged: ends in its header: 8 bytes needed, 0 left; save it again"),
        (b"GGUF" + bytes(60), "not a sequence state of llama.cpp; save one with llama-server's --slot-save-path"),
        (state(ONE, TOKENS, version=5), "version 5 of llama.cpp's sequence state; this program reads versions 2, 3, 4"),
        (state(ONE, TOKENS, streams=2), "holds 2 streams of cells"),
        (state(ONE, TOKENS, positions=()), "holds no tokens"),
        (state(ONE, TOKENS, rotated=64), "use caches of type f32, f16 or bf16"),
        (state(ONE, TOKENS, type=8), "its cache has ggml's type 8"),
        (state(ONE, TOKENS, type=1, transposed=True), "damaged: a layer's cells have 32 bytes of F16"),
        (state(ONE, TOKENS, layers=10**9), "damaged: ends in a layer's cells: 4 bytes needed, 0 left"),
        (state(ONE, TOKENS, layers=1), "bytes follow its last layer: a model with several caches"),
        (state(ONE, [*server_tokens(TOKENS)[:-1], 3]), "with images or sounds"),
        (state(ONE, TOKENS)[:-1], "damaged: ends in a layer's cells: 128 bytes needed, 127 left"),
        (state(ONE, TOKENS).replace(b"\4\0\0\0", b"\xff\xff\xff\xff", 2), "damaged|version"),
    ],
)
def test_another_file_is_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_state(data, "saved")
    assert str(caught.value).startswith("saved: ")
    assert "\n" not in str(caught.value)


@given(some.binary(max_size=200), some.integers(0, 400), some.integers(0, 400), some.booleans())
def test_any_bytes_are_parsed_or_refused(noise: bytes, begin: int, cut: int, keep: bool) -> None:
    whole = state(ONE, TOKENS)
    data = noise if not keep else (whole[:begin] + noise + whole[begin + len(noise) :])[: len(whole) - cut]
    with suppress(InputError):
        assert max(block.end for block in parse_state(data, "saved").values) == len(data)


@pytest.mark.parametrize(
    ("changes", "tokens", "message"),
    [
        ({}, (1, 7, 7, 4), "has 4 tokens, the memory 4, and token 3 differs; save it after exactly the memory's token"),
        ({}, TOKENS[:3], "has 4 tokens, the memory 3, and token 3 differs"),
        ({"positions": (0, 1, 2)}, TOKENS, "has 3 cells for 4 tokens"),
        ({"positions": (0, 1, 3, 2)}, TOKENS, "not in the order of their positions"),
    ],
)
def test_other_tokens_and_cells_are_refused(changes: dict[str, Any], tokens: tuple[int, ...], message: str) -> None:
    first = ONE if "positions" not in changes else memory(1, length=len(changes["positions"]))
    with pytest.raises(InputError, match=message):
        check_tokens(saved(state(first, TOKENS, **changes)), tokens)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (memory(1, layers=3), "has 3 layers of 8 keys for each token, the memory 2 of 8"),
        (memory(1, heads=3), "has 2 layers of 12 keys for each token, the memory 2 of 8"),
        (memory(2), "it was made by another model; save it with the model that made the memory"),
        (replace(ONE, keys=tuple(k * 1.11 for k in ONE.keys)), "its keys differ from one reading by 1.1e-01"),
        (replace(ONE, keys=tuple(k * float("nan") for k in ONE.keys)), "by inf of their layer's largest"),
    ],
)
def test_a_state_of_another_model_is_refused(other: Memory, message: str) -> None:
    with pytest.raises(InputError, match=message):
        agreement(saved(state(other, TOKENS)), ONE)


def test_a_quantized_model_may_differ() -> None:
    other = replace(ONE, keys=tuple(keys * 1.09 for keys in ONE.keys))
    assert agreement(saved(state(other, TOKENS)), ONE).keys == pytest.approx(0.09, rel=1e-2)


def test_a_memory_that_a_type_cannot_hold_is_refused(tmp_path: Path) -> None:
    large = replace(FIVE, values=tuple(values * 1e6 for values in FIVE.values))
    with pytest.raises(
        InputError, match="its cache has the type F16, which the memory exceeds; use caches of type f32"
    ):
        write_state(large, saved(state(ONE, TOKENS, kind="f16")), True, tmp_path / "state")
    assert not list(tmp_path.iterdir())
