"""What holds of every tensor in 8 or 4 bits: how far a number moves, and that the codes come back."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepthink_cli.artifact.files import Codes, check_codes, dequantized
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.plugins.memories.quantize import quantized
from deepthink_cli.provenance import Bits, Quantized

Part = Literal["keys", "values"]
FORMS = st.builds(Quantized, st.sampled_from([8, 4]), st.integers(1, 40), st.just("d"))
PARTS: Any = st.sampled_from(["keys", "values"])
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40))
MAGNITUDES = st.sampled_from([1e-44, 1e-30, 1e-3, 1.0, 500.0, 1e30])


def form(bits: Bits, group: int = 32) -> Quantized:
    return Quantized(bits, group, "d")


def spread(ranges: Tensor, like: Tensor, part: Part, group: int) -> Tensor:
    """The range of every number, found without the package's own way."""
    axis = 1 if part == "keys" else 2
    return torch.stack([ranges.double().select(axis, place // group) for place in range(like.shape[axis])], dim=axis)


def normal(shape: tuple[int, int, int], magnitude: float, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * magnitude


@given(FORMS, PARTS, SHAPES, MAGNITUDES, st.integers(0, 9), st.sampled_from([0.0, 0.0, 7.0, -300.0]))
def test_a_number_moves_by_at_most_half_the_scale_of_its_group(
    form: Quantized, part: Part, shape: tuple[int, int, int], magnitude: float, seed: int, offset: float
) -> None:
    numbers = normal(shape, magnitude, seed) + offset * magnitude
    stored = quantized(numbers, part, form)
    back = dequantized(stored, part, shape[1], form)
    rounding = torch.finfo(torch.float32).eps * back.double().abs() + 1e-45
    allowed = spread(stored.scale, numbers, part, form.group) / 2 + rounding
    assert ((back.double() - numbers.double()).abs() <= allowed).all()


@given(FORMS, PARTS, SHAPES, st.integers(0, 9))
def test_the_scale_is_hardly_wider_than_the_range_of_the_group(
    form: Quantized, part: Part, shape: tuple[int, int, int], seed: int
) -> None:
    """bfloat16 has eight bits, so that rounding up adds less than 2^-7, and rounding `low` down as much of it."""
    numbers = normal(shape, 1.0, seed)
    stored, axis = quantized(numbers, part, form), 1 if part == "keys" else 2
    for place, group in enumerate(torch.split(numbers.double(), form.group, axis)):
        low, high = group.amin(axis), group.amax(axis)
        wide = (high - low + low.abs() * 2**-7) / (2**form.bits - 1) * (1 + 2**-7) + 2**-126
        assert (stored.scale.double().select(axis, place) <= wide).all()


@given(FORMS, PARTS, SHAPES)
def test_the_tensors_have_the_shapes_of_the_format(form: Quantized, part: Part, shape: tuple[int, int, int]) -> None:
    heads, length, size = shape
    stored = quantized(normal(shape, 1.0), part, form)
    assert stored.codes.shape == (heads, math.ceil(length * form.bits / 8), size)
    groups = math.ceil((length if part == "keys" else size) / form.group)
    assert stored.low.shape == ((heads, groups, size) if part == "keys" else (heads, length, groups))
    assert stored.scale.shape == stored.low.shape
    check_codes(stored, length, form, "it")


@given(FORMS, PARTS, SHAPES, st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-40, -1e20]))
def test_equal_numbers_that_bfloat16_holds_come_back_unchanged(
    form: Quantized, part: Part, shape: tuple[int, int, int], value: float
) -> None:
    constant = torch.full(shape, value).bfloat16().float()
    assert torch.equal(dequantized(quantized(constant, part, form), part, shape[1], form), constant)


@pytest.mark.parametrize("bits", [8, 4])
def test_an_outlier_costs_only_its_own_channel_of_the_keys_and_token_of_the_values(bits: Bits) -> None:
    numbers = normal((1, 64, 64), 1.0)
    for part in ("keys", "values"):
        wild = numbers.clone()
        wild[0, 5, 7] = 1e30
        plain, moved = (
            dequantized(quantized(each, part, form(bits)), part, 64, form(bits)) for each in (numbers, wild)
        )
        same = (plain == moved)[0]
        same[:32, 7] |= part == "keys"
        same[5, :32] |= part == "values"
        assert same.all(), part
        assert moved[0, 5, 7] == pytest.approx(1e30, rel=0.01)


@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33])
def test_two_tokens_share_a_byte_and_the_last_half_of_an_odd_number_is_zero(length: int) -> None:
    stored = quantized(normal((2, length, 3), 1.0), "values", form(4))
    assert stored.codes.shape[1] == (length + 1) // 2
    if length % 2:
        assert not (stored.codes[:, -1] >> 4).any()
        beyond = Codes(stored.codes.clone(), stored.low, stored.scale)
        beyond.codes[0, -1, 0] |= 16
        with pytest.raises(InputError, match=f"it has codes for more than {length} tokens"):
            check_codes(beyond, length, form(4), "it")


def test_the_first_token_is_the_low_half_of_its_byte() -> None:
    stored = quantized(torch.tensor([[[0.0], [15.0], [3.0]]]), "keys", form(4))
    assert stored.codes.flatten().tolist() == [15 << 4, 3]
    assert (stored.low.item(), stored.scale.item()) == (0.0, 1.0)


def test_numbers_that_bfloat16_does_not_hold_are_refused() -> None:
    with pytest.raises(DeepThinkError, match=r"^int8 cannot store keys as large as 3.4e\+38; keep float32$"):
        quantized(torch.tensor([[[-3.4028e38], [0.0]]]), "keys", form(8))
