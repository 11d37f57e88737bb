"""Finding models, knowing them, and refusing those that cannot think; mostly before any weights are read."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, read, write_rows
from helpers.said import Captured
from transformers import AutoConfig

from deepthink_cli import DemonstrationSet, load_model
from deepthink_cli.cli.main import run
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.model.limits import check_fit, limits_of
from deepthink_cli.model.opening import needs_download, open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.scoring.likelihood import check_length


def config(family: str, **fields: Any) -> Any:
    return AutoConfig.for_model(family, **fields)


def test_an_adapter_is_refused_with_and_without_a_model_beside_it(models: Models, tmp_path: Path) -> None:
    both, alone = Path(shutil.copytree(models("llama"), tmp_path / "both")), tmp_path / "alone"
    alone.mkdir()
    for folder in (both, alone):
        (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
        with pytest.raises(InputError, match="holds an adapter; merge it into its model first"):
            load_model(str(folder))


@pytest.mark.parametrize(
    ("family", "fields", "iterations", "positions", "largest"),
    [
        ("gpt2", {"n_positions": 1024}, 5, "continued", 512),
        ("gpt2", {"n_positions": 1024}, 5, "restarted", 1024),
        ("gpt2", {"n_positions": 1024}, 1, "continued", 1024),
        ("mistral", {"sliding_window": 4096, "max_position_embeddings": 32768}, 5, "restarted", 32768),
        ("gpt_neo", {"window_size": 256, "max_position_embeddings": 2048}, 2, "restarted", 1024),
        ("gemma3_text", {"sliding_window": 512, "max_position_embeddings": 4096}, 2, "continued", 2048),
        ("doge", {"keep_window_size": 512}, 2, "restarted", 256),
        ("qwen2", {"use_sliding_window": False, "max_position_embeddings": 100}, 2, "continued", 50),
        ("llama", {"max_position_embeddings": 4096}, 2, "continued", 2048),
        ("bloom", {}, 5, "continued", None),
    ],
)
def test_the_largest_demonstrations_follow_from_positions_and_keys_and_not_from_windows(
    family: str, fields: dict[str, Any], iterations: int, positions: str, largest: int | None
) -> None:
    assert limits_of(config(family, **fields)).largest(positions, iterations) == largest


def test_demonstrations_and_queries_may_go_beyond_a_window() -> None:
    limits = limits_of(config("mistral", sliding_window=64, max_position_embeddings=100))
    assert limits.holds(50, "continued", 2)
    check_length(limits, "mistral", 90, TokenizedQuery((1,) * 9, ((1,), (2,))))
    with pytest.raises(InputError, match="context of 100"):
        check_length(limits, "mistral", 90, TokenizedQuery((1,) * 11, ((1,), (2,))))


def test_alibi_has_no_positions_to_restart(llama: Engine, reviews: DemonstrationSet) -> None:
    with pytest.raises(InputError, match=r"positions restarted: .* \(as with ALiBi"):
        check_fit(limits_of(config("bloom")), llama.tokenizer, reviews, 2, "restarted", "bloom")


def test_an_unknown_directory_is_an_error_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such model directory"):
        open_model(ModelOptions(model=str(tmp_path / "nowhere")))
    with pytest.raises(InputError, match=r"no config\.json"):
        open_model(ModelOptions(model=str(tmp_path)))


def test_a_hub_model_that_is_not_here_says_so_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    options = ModelOptions(model="no-such-owner/no-such-model", offline=True)
    allowed = options.model_copy(update={"offline": False})
    assert (needs_download(allowed), needs_download(options)) == (True, False)
    with pytest.raises(DeepThinkError, match=r"model no-such-owner/no-such-model: not in the cache.*omit offline"):
        open_model(options)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not needs_download(allowed)


def test_missing_weights_are_not_made_up_and_a_missing_tokenizer_is_named(models: Models, tmp_path: Path) -> None:
    model = Path(shutil.copytree(models("llama"), tmp_path / "model"))
    fields = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**fields, "num_hidden_layers": 3}))
    with pytest.raises(DeepThinkError, match=r"weights are missing, such as model\.layers\.2"):
        load_model(str(model))
    for file in model.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(InputError, match="its tokenizer cannot be loaded"):
        open_model(ModelOptions(model=str(model)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "8bit"}, r"quantize 8bit: bitsandbytes is not installed; in a checkout"),
        ({"device": "cuda:99"}, r"device cuda:99: torch sees \d+ CUDA devices"),
        ({"device_map": "auto"}, r"accelerate is not installed"),
    ],
)
def test_what_is_not_here_is_said_before_the_model_is_opened(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=message):
        open_model(ModelOptions.checked(**options))


def test_a_reading_that_does_not_fit_is_an_error_and_no_crash(models: Models) -> None:
    engine = load_model(str(models("gpt2")))
    history = read(engine, [5] * 300)
    with pytest.raises(InputError, match=r"too long: 300 tokens after 300 of memory, .* holds 512"):
        read(engine, [5] * 300, history, start=300)
    assert read(engine, [5] * 300, history, start=0).length == 300


def test_a_reading_cannot_restart_where_there_are_no_positions(models: Models) -> None:
    engine = load_model(str(models("bloom")))
    history = read(engine, [5, 6, 7])
    with pytest.raises(InputError, match=r"positions restarted: .* has no positions to restart"):
        read(engine, [5, 6, 7], history, start=0)


def precompiled(charsmap: bytes) -> dict[str, str]:
    """A normalizer of a tokenizer.json with a table of characters."""
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"normalizer": precompiled(b"\xff" * 8)}, 2, "its tokenizer cannot be loaded: Precompiled: "),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, 2, "its tokenizer cannot be loaded: chunk size must"),
        # A table of the ASCII characters alone: other texts are beyond its end.
        ({"normalizer": precompiled(struct.pack("<I", 512) + bytes(512) + b"x")}, 1, "a library failed (index out of"),
    ],
)
def test_a_tokenizer_whose_library_panics_is_an_error_of_one_line(
    changes: dict[str, object], code: int, reason: str, models: Models, tmp_path: Path, capsys: Captured
) -> None:
    model = Path(shutil.copytree(models("llama"), tmp_path / "model"))
    content = json.loads((model / "tokenizer.json").read_text())
    (model / "tokenizer.json").write_text(json.dumps({**content, **changes}))
    demos = write_rows(tmp_path / "demos.jsonl", [{"a": "café", "b": "one"}, {"a": "thé", "b": "two"}])
    words = ["think", str(demos), "-m", str(model), "-T", "1", "-q", "-o", str(tmp_path / "mem.safetensors")]
    assert run(words) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("deepthink: ")
    assert reason in line
