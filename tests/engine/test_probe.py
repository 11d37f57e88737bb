"""The probe: a network is packed where that changes nothing but rounding; verdicts are kept on this machine."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import Models, shared
from helpers.families import EVERY_FAMILY, write_model
from queries import NOT_PACKED
from safetensors.torch import load_file, save_file

from deepthink_cli import load_model
from deepthink_cli.engine import attention, kernels, packed, probe
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.opening import load_language_model
from deepthink_cli.engine.probe import Verdict, try_packed
from deepthink_cli.events import Detail
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

pytestmark = pytest.mark.usefixtures("loaded_anew")
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
    assert model.head is not None


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


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The dtypes of the models that are probed, with an empty cache that also keeps verdicts of small models."""
    dtypes: list[str] = []
    whole = probe.try_packed

    def noted(model: LanguageModel) -> Verdict:
        dtypes.append(model.identity.dtype)
        return whole(model)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(probe, "_SMALL", 0)
    monkeypatch.setattr(probe, "try_packed", noted)
    return dtypes


def kept(folder: Path) -> list[Path]:
    """The files of kept verdicts."""
    return sorted((folder / "deepthink" / "probes").glob("*"))


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_a_verdict_is_kept_and_used_again(family: str, models: Models, probed: list[str]) -> None:
    first, second = (load_model(str(models(family))) for _ in range(2))
    assert probed == ["float32"]
    assert (type(second), second.description) == (type(first), first.description)


def test_another_dtype_is_probed_by_itself(models: Models, probed: list[str]) -> None:
    for dtype in ("float32", "bfloat16", "float32", "bfloat16"):
        load_model(str(models("llama")), dtype=dtype)
    assert probed == ["float32", "bfloat16"]


def test_other_code_of_the_engines_is_probed_again(
    models: Models, probed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_model(str(models("llama")))
    monkeypatch.setattr(probe, "_engine_sha256", lambda: "0" * 64)
    load_model(str(models("llama")))
    assert len(probed) == 2


@pytest.mark.parametrize("damage", ["", "{", "{}", "[]", '{"verdict": {}}', "é"])
def test_a_damaged_entry_is_made_again(damage: str, models: Models, probed: list[str], tmp_path: Path) -> None:
    load_model(str(models("llama")))
    (entry,) = kept(tmp_path)
    whole = entry.read_bytes()
    entry.write_text(damage, encoding="utf-8")
    load_model(str(models("llama")))
    assert len(probed) == 2
    assert entry.read_bytes() == whole


def test_an_error_is_no_verdict_to_keep(
    models: Models, probed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise NotImplementedError("no such kernel")

    with monkeypatch.context() as context:
        context.setattr(kernels, "kernel_of", lambda _: broken)
        with pytest.warns(RuntimeWarning, match="no such kernel"):
            load_model(str(models("llama")))
    assert kept(tmp_path) == []
    assert load_model(str(models("llama"))).told is Detail


def test_a_cache_that_cannot_be_written_only_costs_time(models: Models, probed: list[str], tmp_path: Path) -> None:
    (tmp_path / "deepthink").write_text("a file where the folder would be")
    for _ in range(2):
        load_model(str(models("llama")))
    assert len(probed) == 2
