"""The model is the flag's, the environment's, the config file's or the default, in this order; memories name theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.said import Captured

from deepthink_cli.cli.main import run

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
