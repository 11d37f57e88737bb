"""The engine of a model: chosen by a probe of ordinary text and the model's own rounding, shown with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import shared, write_rows
from families import FAMILIES, write_model
from oracle import plain_scores
from safetensors.torch import load_file, save_file

from deepthink_cli import load_model, score
from deepthink_cli.cli.main import run
from deepthink_cli.engine import attention
from deepthink_cli.engine.choice import engine_of
from deepthink_cli.engine.probe import try_packed
from deepthink_cli.model.tokens import TokenizedQuery

Models = Callable[[str], Path]
DTYPES = ("float32", "bfloat16", "float16")
DEMOS = tuple(range(20, 40))
QUERY = TokenizedQuery(tuple(range(50, 58)), ((9,), (10, 11), (10, 12)))
SINKS: dict[str, Any] = {
    **FAMILIES["llama"], "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 128,
}  # fmt: skip


def with_sinks(folder: Path) -> str:
    """A model with attention sinks."""
    FAMILIES["gpt_oss"] = SINKS
    try:
        return str(write_model(folder, "gpt_oss"))
    finally:
        del FAMILIES["gpt_oss"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_whose_low_ids_were_never_trained_is_packed(dtype: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "gpt2")
    weights = load_file(folder / "model.safetensors")
    weights["transformer.wte.weight"][1:12] = 1e25  # so large that LayerNorm overflows
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    model = load_model(str(folder), dtype=dtype)
    assert engine_of(model).packed
    assert model.has_float32_head


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "qwen3"])
def test_half_precision_does_not_keep_a_family_from_being_packed(family: str, dtype: str, models: Models) -> None:
    assert engine_of(load_model(str(models(family)), dtype=dtype)).packed


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_trained_model_is_packed_in_every_dtype(dtype: str) -> None:
    assert engine_of(load_model(str(shared("models/stories260K")), dtype=dtype)).packed


def test_what_differs_by_more_than_rounding_is_not_packed(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_over_past", lambda query, *_: (query * 0, query[..., 0].float() - 1e4))
    for dtype in DTYPES:
        verdict = try_packed(load_model(str(models("llama")), dtype=dtype))
        assert verdict.reason is not None
        assert "nats, rounding alone by" in verdict.reason
        assert verdict.failure is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_sinks_are_a_reason_not_to_pack(dtype: str, tmp_path: Path) -> None:
    model = load_model(with_sinks(tmp_path / "sinks"), dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = engine_of(model)
    assert not engine.packed
    assert "its attention takes s_aux, which the packed engine does not compute" in engine.description


def test_a_model_with_attention_of_its_own_says_so_without_a_warning(models: Models) -> None:
    for family in ("bloom", "gpt_neo", "falcon", "mpt"):
        model = load_model(str(models(family)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "its attention is custom code" in engine_of(model).description


@pytest.mark.parametrize(
    "error",
    [
        TypeError("flash_attention() got an unexpected keyword argument 'scale'"),
        NotImplementedError('"flash" not implemented for BFloat16'),
        torch.AcceleratorError("CUDA error: device-side assert triggered"),
    ],
)
def test_an_error_that_is_not_the_networks_way_of_attending_is_a_warning_that_names_it(
    error: Exception, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(attention, "_kernel", lambda _: broken)
    model = load_model(str(models("llama")))
    with pytest.warns(RuntimeWarning, match=type(error).__name__):
        engine = engine_of(model)
    assert str(error) in engine.description
    assert score(model, model.read(DEMOS), [QUERY])[0].sums == pytest.approx(
        plain_scores(model, DEMOS, QUERY), abs=1e-4
    )


def test_a_build_of_torch_without_the_kernel_is_packed_all_the_same(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_KERNELS", {"cpu": "no_such_operation"})
    model = load_model(str(models("llama")))
    assert engine_of(model).packed
    assert score(model, model.read(DEMOS), [QUERY])[0].sums == pytest.approx(
        plain_scores(model, DEMOS, QUERY), abs=1e-4
    )


@pytest.mark.parametrize(
    ("family", "more", "said"),
    [("llama", ["-v"], "packed engine, "), ("bloom", [], "padded engine: its attention"), ("llama", [], ""), ("bloom", ["-q"], "")],
)  # fmt: skip
def test_predict_says_which_engine_scores_and_why_rows_are_padded(
    family: str,
    more: list[str],
    said: str,
    models: Models,
    demos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory, rows = str(tmp_path / "mem.safetensors"), write_rows(tmp_path / "in.jsonl", [{"review": "fine"}])
    assert run(["think", str(demos), "-m", str(models(family)), "-T", "1", "-q", "-o", memory]) == 0
    assert capsys.readouterr().err == ""
    assert run(["predict", memory, str(rows), *more]) == 0
    told = capsys.readouterr().err
    assert said in told
    assert said or "engine" not in told


def test_doctor_says_which_engine_a_model_gets(models: Models, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    assert "engine       pocket in float32 on cpu: packed engine, " in capsys.readouterr().out
    assert run(["doctor", "-m", str(models("bloom"))]) == 0
    assert "padded engine: its attention is custom code" in capsys.readouterr().out
    assert run(["doctor", "-m", "./nowhere"]) == 2
