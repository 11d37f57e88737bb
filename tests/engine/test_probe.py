"""The probe: a network is packed where that changes nothing but rounding, in every dtype."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import Models, shared
from helpers.families import EVERY_FAMILY, write_model
from queries import NOT_PACKED
from safetensors.torch import load_file, save_file

from deepthink_cli.engine import attention, packed
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.opening import load_language_model
from deepthink_cli.engine.probe import try_packed
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

DTYPES = ("float32", "bfloat16", "float16")


def load(folder: Path, dtype: str = "auto") -> LanguageModel:
    """A model without an engine."""
    return load_language_model(open_model(ModelOptions.checked(model=str(folder), dtype=dtype)))


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_whether_a_family_is_packed_is_found_by_trying_it(family: str, models: Models) -> None:
    verdict = try_packed(load(models(family)))
    assert (verdict.reason is None) is (family not in NOT_PACKED)
    assert verdict.reason is not None or (verdict.difference is not None and verdict.difference < 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_whose_low_ids_were_never_trained_is_packed(dtype: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "gpt2")
    weights = load_file(folder / "model.safetensors")
    weights["transformer.wte.weight"][1:12] = 1e25  # so large that LayerNorm overflows
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    model = load(folder, dtype)
    assert try_packed(model).reason is None
    assert model.has_float32_head


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["gpt2", "llama", pytest.param("gemma2", marks=pytest.mark.soak), "qwen3"])
def test_half_precision_does_not_keep_a_family_from_being_packed(family: str, dtype: str, models: Models) -> None:
    assert try_packed(load(models(family), dtype)).reason is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_trained_model_is_packed_in_every_dtype(dtype: str) -> None:
    assert try_packed(load(shared("models/stories260K"), dtype)).reason is None


def test_what_differs_by_more_than_rounding_is_not_packed(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_over_earlier", lambda query, *_: (query * 0, query[..., 0].float() - 1e4))
    for dtype in DTYPES:
        verdict = try_packed(load(models("llama"), dtype))
        assert verdict.reason is not None
        assert "nats, rounding alone by" in verdict.reason
        assert verdict.failure is None


def test_a_network_that_ignores_the_memory_is_not_packed(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = packed.over_memory
    # Scoring passes do not say what is kept; readings do, and are run as they are.
    monkeypatch.setattr(packed, "over_memory", lambda *args, **named: whole(*args) if len(args) == 3 else nullcontext())
    verdict = try_packed(load(models("llama")))
    assert verdict.reason is not None
    assert verdict.difference is not None
    assert verdict.difference > 0.1
