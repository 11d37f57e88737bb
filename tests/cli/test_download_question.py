"""The model that a memory names is downloaded from the hub only after a yes, where somebody can be asked."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured

from deepthink_cli import load_memory, save_memory
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.model.options import ModelOptions

STRANGE = "no-such-owner/no-such-model"
NOTE = f"{STRANGE} is not in the cache; asking the hub, to download it"


@pytest.fixture
def command(thought_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels a row with a memory that names a model which is not on this machine; opening it is an error, `asked`."""
    path = thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1")
    memory = load_memory(path)
    stranger = replace(memory.provenance, model=replace(memory.provenance.model, id=STRANGE))
    save_memory(replace(memory, provenance=stranger), path)

    def unreachable(options: ModelOptions) -> None:
        raise InputError("asked")

    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("deepthink_cli.engine.opening.open_model", unreachable)
    return ["predict", str(path), str(write_rows(tmp_path / "in.jsonl", [{"review": "x"}]))]


def run_on_terminal(words: list[str], typed: bytes) -> int:
    """The exit code on a terminal at which this has been typed."""
    control, terminal = pty.openpty()
    os.write(control, typed)
    with open(terminal, encoding="utf-8") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stream)
        patch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        code = run(words)
    os.close(control)
    return code


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 2), (b"n\n", 1), (b"\n", 1)])
def test_on_a_terminal_the_model_that_a_memory_names_is_asked_about(
    answer: bytes, code: int, command: list[str], capsys: Captured
) -> None:
    assert run_on_terminal([*command, "-q"], answer) == code
    error = capsys.readouterr().err
    assert f"mem.safetensors names its model: {NOTE}" in error
    assert "Download it? [y/N]" in error
    assert error.endswith("deepthink: asked\n" if code == 2 else "name a model that you have with -m\n")


def test_elsewhere_a_note_comes_before_the_download(command: list[str], capsys: Captured) -> None:
    assert run(command) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(f"mem.safetensors names its model: {NOTE}")
    assert second == "deepthink: asked"


@pytest.mark.parametrize("more", [["-m", STRANGE], ["--offline"]])
def test_a_model_that_the_user_names_or_that_cannot_be_downloaded_is_not_asked_about(
    more: list[str], command: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # which --offline changes
    assert run_on_terminal([*command, *more], b"") == 2
    assert "Download it?" not in capsys.readouterr().err
