"""A model is identified by every byte of its weights, read once per machine, and once in a command."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_rows
from helpers.families import write_model
from helpers.tiny import run_words

from deepthink_cli import load_model
from deepthink_cli.cli.main import run
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.experiments.results import read_results
from deepthink_cli.model import fingerprint
from deepthink_cli.model.fingerprint import weight_files, weights_sha256
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

pytestmark = pytest.mark.usefixtures("loaded_anew")


@pytest.fixture
def model(models: Models, tmp_path: Path) -> Path:
    """A copy of a model, to be changed."""
    return Path(shutil.copytree(models("llama"), tmp_path / "model"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files whose contents are read, with an empty cache that also keeps new files."""
    names: list[str] = []

    def noted(file: Path, *given: Any, **options: Any) -> Any:
        names.append(str(file))
        return open(file, *given, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in {"_TIME_RESOLUTION": 0, "open": noted}.items():
        monkeypatch.setattr(fingerprint, name, value, raising=False)
    return names


def change_one_weight(file: Path) -> None:
    """Change the last byte of the last tensor."""
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_weights_are_read_once_and_again_when_a_file_has_changed(model: Path, opened: list[str]) -> None:
    files = weight_files(str(model), None)
    first = weights_sha256(files)
    assert opened
    opened.clear()
    assert (weights_sha256(files), opened) == (first, [])
    times = files[0].stat()
    change_one_weight(files[0])
    os.utime(files[0], ns=(times.st_atime_ns, times.st_mtime_ns))
    second = weights_sha256(files)
    assert second != first
    shutil.copy2(files[0], model / "copy")
    os.replace(model / "copy", files[0])
    opened.clear()
    assert weights_sha256(files) == second
    assert opened
    os.utime(files[0])
    opened.clear()
    assert weights_sha256(files) == second
    assert opened


@pytest.mark.parametrize("kept", [b"", b"\xff" * 64, b"0" * 63, b"g" * 64, b"0" * 65])
def test_a_damaged_cache_is_not_believed(kept: bytes, model: Path, tmp_path: Path, opened: list[str]) -> None:
    files = weight_files(str(model), None)
    first = weights_sha256(files)
    (entry,) = (tmp_path / "cache" / "deepthink" / "weights").iterdir()
    entry.write_bytes(kept)
    assert weights_sha256(files) == first
    assert entry.read_text() == first


def test_a_cache_that_cannot_be_written_costs_time_alone(
    model: Path, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    files = weight_files(str(model), None)
    assert weights_sha256(files) == weights_sha256(files)
    assert len(opened) > len(files)


def test_a_file_that_has_just_changed_is_not_remembered(model: Path, opened: list[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(fingerprint, "_TIME_RESOLUTION", 10**12)
    files = weight_files(str(model), None)
    first = weights_sha256(files)
    opened.clear()
    assert weights_sha256(files) == first
    assert opened


def test_tensors_that_share_bytes_are_damage(model: Path) -> None:
    header = json.dumps(
        {str(n): {"dtype": "U8", "shape": [999], "data_offsets": [0, 999]} for n in range(100)}
    ).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(999))
    with pytest.raises(DeepThinkError, match=r"its tensors are larger than the file; get the whole checkpoint"):
        weights_sha256([model / "model.safetensors"])


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the weight files of every call that hashes weights."""
    calls: list[list[str]] = []

    def counting(files: list[Path]) -> str:
        calls.append([file.name for file in files])
        return weights_sha256(files)

    monkeypatch.setattr("deepthink_cli.model.spec.weights_sha256", counting)
    return calls


def many_jobs(folder: Path, model: str) -> list[str]:
    """The words of a run of two tasks and three seeds, each with two gates."""
    members = {"one": {}, "two": {"shots": 2}}
    return run_words(folder, Path(model), "-T", "2", "--seeds", "3", "--eta", "0.1,0.2", "-q", members=members)


def test_a_run_of_many_jobs_hashes_the_weights_once(models: Models, tmp_path: Path, hashed: list[list[str]]) -> None:
    command = many_jobs(tmp_path, str(models("llama")))
    assert run(command) == 0
    assert hashed == [["model.safetensors"]]
    digest = load_model(str(models("llama"))).identity.weights_sha256
    rows = read_results(tmp_path / "out")
    assert (len(rows), {row.setting.weights_sha256 for row in rows}) == (24, {digest})
    hashed.clear()
    assert run(command) == 0  # compares the rows of the folder before and after the weights are loaded
    assert hashed == [["model.safetensors"]]


def test_think_and_predict_hash_the_weights_once_each(
    models: Models, demos: Path, tmp_path: Path, hashed: list[list[str]]
) -> None:
    memory, rows = str(tmp_path / "mem.safetensors"), str(write_rows(tmp_path / "in.jsonl", [{"review": "fine"}]))
    for command in (["think", str(demos), "-m", str(models("llama")), "-o", memory], ["predict", memory, rows]):
        hashed.clear()
        assert run([*command, "-q"]) == 0
        assert hashed == [["model.safetensors"]]


def test_an_identity_is_one_object_until_the_weights_change(tmp_path: Path, hashed: list[list[str]]) -> None:
    model = write_model(tmp_path / "model", "llama")
    spec = open_model(ModelOptions(model=str(model)))
    assert hashed == []
    first = spec.identify()
    assert spec.identify() is first
    write_model(tmp_path / "other", "llama", seed=1)
    os.replace(tmp_path / "other" / "model.safetensors", model / "model.safetensors")
    assert load_model(spec).identity.weights_sha256 == spec.identify().weights_sha256 != first.weights_sha256
    assert len(hashed) == 2
