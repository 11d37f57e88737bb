"""Running out of memory is one line that says what to do, not a bug."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Models, write_rows
from helpers.said import Captured

from deepthink_cli import load_model
from deepthink_cli.cli.main import run
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.probe import check_plain_pass
from deepthink_cli.errors import DeepThinkError, ran_out_of_memory

CUDA = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1 MiB is free."
PROCESSOR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "400000000 bytes. Error code 12 (Cannot allocate memory)"
)
ERRORS = [
    (torch.OutOfMemoryError(CUDA), "out of memory of the GPU: 2.50 GiB could not be allocated"),
    (RuntimeError(PROCESSOR), "out of memory: 400000000 bytes could not be allocated"),
    (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB). Tried to allocate 12 MB"), "out of memory: 12 MB"),
    (MemoryError(), "out of memory: the memory needed could not be allocated"),
]
KINDS = ["gpu", "processor", "mps", "python"]


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=KINDS)
@pytest.mark.parametrize("command", ["think", "predict"])
def test_what_did_not_fit_is_told_with_a_hint(
    command: str,
    error: Exception,
    told: str,
    demos: Path,
    models: Models,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    memory, inputs = tmp_path / "mem.safetensors", write_rows(tmp_path / "in.jsonl", [{"review": "x"}])
    words = ["think", str(demos), "-m", str(models("llama")), "-T", "1", "-q", "-o", str(memory)]
    assert run(words) == 0

    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(BatchedEngine, "read" if command == "think" else "score", full)
    assert run(words if command == "think" else ["predict", str(memory), str(inputs), "-q"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert told in err
    smaller = "" if command == "think" else "a smaller --batch-tokens, "
    assert f"use {smaller}--dtype bfloat16, --quantize 4bit, --device-map auto, or fewer demonstrations" in err


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=KINDS)
def test_weights_that_do_not_fit_are_told_with_a_hint(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", full)
    with pytest.raises(DeepThinkError, match=f"model pocket: {told}"):
        load_model()


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=KINDS)
def test_a_model_is_not_refused_for_memory_that_is_missing(
    error: Exception, told: str, llama: BatchedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(LanguageModel, "run", full)
    with pytest.raises(type(error)):
        check_plain_pass(llama.model, (5, 6, 7), (8, 9))


def test_other_errors_are_not_taken_for_missing_memory() -> None:
    assert ran_out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not ran_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not ran_out_of_memory(OSError(errno.ENOENT, "no such file"))
    assert not ran_out_of_memory(ValueError("a text about running out of memory"))
