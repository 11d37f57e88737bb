"""The model is the flag's, the environment's, the config file's or the default; memories name theirs.

The model that a memory names is downloaded from the hub only after a yes, where somebody can be asked.
"""

from __future__ import annotations

import json
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

REVIEWS = Path(__file__).parent.parent.parent / "examples" / "reviews" / "demos.jsonl"
WITHOUT_CONFIG = ("doctor", "demo")
NOWHERE = "./no-such-model"


def config(folder: Path, model: str) -> str:
    (folder / "options.toml").write_text(f"model = {json.dumps(model)}\n")
    return str(folder / "options.toml")


@pytest.mark.plugins
@pytest.mark.parametrize(
    "words",
    [
        ["think", str(REVIEWS)],
        ["tune", str(REVIEWS)],
        ["select", str(REVIEWS), "--demos-by", "herding", "--shots", "4"],
        ["run", "--task", "sst2", "--dry-run"],
        ["doctor"],
        ["demo"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("by_file", [False, True])
def test_every_command_that_names_a_model_takes_the_default_from_both(
    words: list[str], by_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    if by_file and words[0] in WITHOUT_CONFIG:
        return
    if by_file:
        words = [*words, "--config", config(tmp_path, NOWHERE)]
    else:
        monkeypatch.setenv("DEEPTHINK_MODEL", NOWHERE)
    assert run(words) == 2
    assert f"{NOWHERE}: no such model directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["predict", "eval"])
def test_a_memory_names_its_model_and_only_a_flag_names_another(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    memory = str(tmp_path / "mem.safetensors")
    assert run(["think", str(REVIEWS), "-T", "1", "-q", "-o", memory]) == 0
    words = [command, memory, str(REVIEWS), "-q"]
    for name in ("MODEL", "REVISION", "GGUF"):
        monkeypatch.setenv(f"DEEPTHINK_{name}", NOWHERE)
    assert run(words) == 0
    assert run([*words, "--config", config(tmp_path, NOWHERE)]) == 0
    capsys.readouterr()
    monkeypatch.delenv("DEEPTHINK_GGUF")
    assert run([*words, "-m", NOWHERE]) == 2
    assert NOWHERE in capsys.readouterr().err


def test_labels_of_the_toy_are_said_to_be_of_a_toy(tmp_path: Path, capsys: Captured) -> None:
    memory = str(tmp_path / "mem.safetensors")
    assert run(["think", str(REVIEWS), "-m", "pocket", "-T", "1", "-o", memory]) == 0
    capsys.readouterr()
    for command in ("predict", "eval"):
        assert run([command, memory, str(REVIEWS)]) == 0
        assert f"{memory}: pocket is a toy" in capsys.readouterr().err
        assert run([command, memory, str(REVIEWS), "-q"]) == 0
        assert "is a toy" not in capsys.readouterr().err


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
