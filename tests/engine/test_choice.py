"""The engine of a model: chosen by a probe or by --engine, and shown with a reason."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Models, read, write_rows
from helpers.said import Captured, output
from queries import DEMOS, QUERIES, plain_scores

from deepthink_cli import load_model, score
from deepthink_cli.cli.main import run
from deepthink_cli.engine import kernels
from deepthink_cli.engine.attention import refuse_unknown
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.opening import choose_engine, load_language_model
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.engine.reach import UnsupportedAttention
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Warn
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

pytestmark = pytest.mark.usefixtures("loaded_anew")
QUERY = QUERIES[0]
ERRORS = [
    TypeError("flash_attention() got an unexpected keyword argument 'scale'"),
    NotImplementedError('"flash" not implemented for BFloat16'),
    torch.AcceleratorError("CUDA error: device-side assert triggered"),
]


def without_engine(folder: Path) -> LanguageModel:
    return load_language_model(open_model(ModelOptions(model=str(folder))))


def break_kernel(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let every attention kernel raise an error."""

    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(kernels, "kernel_of", lambda _: broken)


def assert_scores_are_right(engine: BatchedEngine) -> None:
    expected = plain_scores(engine, DEMOS, QUERY)
    assert score(engine, read(engine, DEMOS), [QUERY])[0].sums == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_model_with_attention_sinks_is_packed(dtype: str, models: Models) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = load_model(str(models("gpt_oss")), dtype=dtype)
    assert isinstance(engine, PackedEngine)
    if dtype == "float32":
        assert_scores_are_right(engine)


def test_an_attention_argument_that_is_not_known_is_a_reason_not_to_pack() -> None:
    with pytest.raises(UnsupportedAttention, match="takes bias, which the packed engine does not compute"):
        refuse_unknown({"bias": torch.ones(1), "dropout": 0.0, "position_bias": None})


def test_layers_that_share_keys_and_values_are_a_reason_not_to_pack(models: Models) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        engine = load_model(str(models("gemma3n_text")))
    assert isinstance(engine, PaddedEngine)
    assert "some of its layers attend to the keys and values of other layers" in engine.description
    with pytest.raises(InputError, match="use engine padded"):
        load_model(str(models("gemma3n_text")), engine="packed")


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_that_is_not_the_networks_way_of_attending_is_a_warning_that_names_it(
    error: Exception, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_kernel(monkeypatch, error)
    with pytest.warns(RuntimeWarning, match=type(error).__name__):
        engine = load_model(str(models("llama")))
    assert isinstance(engine, PaddedEngine)
    assert str(error) in engine.description
    assert engine.told is Warn
    assert_scores_are_right(engine)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_an_error_where_packing_is_asked_for(
    error: Exception, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_kernel(monkeypatch, error)
    with pytest.raises(DeepThinkError, match=f"engine packed: a packed pass failed .{type(error).__name__}") as caught:
        load_model(str(models("llama")), engine="packed")
    assert not isinstance(caught.value, InputError)
    assert caught.value.messages[0].endswith("; use engine padded")


@pytest.mark.parametrize("name", ["auto", "packed"])
def test_a_probe_that_does_not_fit_the_device_says_so(
    name: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = without_engine(models("llama"))
    break_kernel(monkeypatch, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB"))
    with pytest.raises(torch.OutOfMemoryError):
        choose_engine(model, name)


def test_a_build_of_torch_without_the_kernel_is_packed_all_the_same(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_KERNELS", {"cpu": "no_such_operation"})
    engine = load_model(str(models("llama")))
    assert isinstance(engine, PackedEngine)
    assert_scores_are_right(engine)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom"])
def test_the_padded_engine_is_given_where_it_is_asked_for(family: str, models: Models) -> None:
    engine = choose_engine(without_engine(models(family)), "padded")
    assert isinstance(engine, PaddedEngine)
    assert_scores_are_right(engine)


def test_an_unknown_engine_is_refused_with_the_names_of_the_known_ones(models: Models) -> None:
    with pytest.raises(InputError, match="engine sliced: no such engine; use auto, packed, padded"):
        load_model(str(models("llama")), engine="sliced")


@pytest.mark.parametrize(
    ("family", "more", "told"),
    [
        ("llama", ["-v"], "packed engine, 1024 tokens a pass; in a probe, packed and padded scores differ by "),
        ("bloom", [], "padded engine: its attention"),
        ("llama", [], ""),
        ("bloom", ["-q"], ""),
    ],
)
def test_predict_says_which_engine_scores_and_why_rows_are_padded(
    family: str, more: list[str], told: str, models: Models, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    memory, rows = str(tmp_path / "mem.safetensors"), write_rows(tmp_path / "in.jsonl", [{"review": "fine"}])
    assert run(["think", str(demos), "-m", str(models(family)), "-T", "1", "-q", "-o", memory]) == 0
    assert capsys.readouterr().err == ""
    assert run(["predict", memory, str(rows), *more]) == 0
    stderr = capsys.readouterr().err
    assert told in stderr
    assert told or "engine" not in stderr


@pytest.mark.plugins
def test_doctor_says_which_engine_a_model_gets(models: Models, capsys: Captured) -> None:
    assert "engine       pocket in float32 on cpu: packed engine, " in output(capsys, "doctor")
    assert "padded engine: its attention is custom code" in output(capsys, "doctor", "-m", str(models("bloom")))
    assert run(["doctor", "-m", "./nowhere"]) == 2
