"""A model is identified by every byte of its weights, read once per machine."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from conftest import write_rows
from helpers.tiny import run_words
from safetensors.torch import save_file

from deepthink_cli.cli.main import run
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.model import fingerprint
from deepthink_cli.model.fingerprint import SAMPLE, contents_sha256, weight_files, weights_sha256
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

Models = Callable[[str], Path]


@pytest.fixture
def model(models: Models, tmp_path: Path) -> Path:
    """A copy of a model, to be changed."""
    return Path(shutil.copytree(models("llama"), tmp_path / "model"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files whose contents are read, with an empty cache that also keeps small and new files."""
    names: list[str] = []

    def noted(file: Path, *given: Any, **options: Any) -> Any:
        names.append(str(file))
        return open(file, *given, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in {"_SMALL": 0, "_TIME_RESOLUTION": 0, "_digests": {}, "open": noted}.items():
        monkeypatch.setattr(fingerprint, name, value, raising=False)
    return names


def scale_between_samples(file: Path) -> None:
    """Multiply every float32 that is in no sample of its tensor by 1.2."""
    data = bytearray(file.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    for begin, end in (one["data_offsets"] for one in header.values()):
        weights = numpy.frombuffer(data, "<f4", (end - begin) // 4, 8 + length + begin)
        kept, middle = SAMPLE // 4 + 1, len(weights) // 2
        if middle > 2 * kept:
            weights[kept : middle - kept] *= 1.2
            weights[middle + kept : -kept] *= 1.2
    file.write_bytes(data)


def test_weights_scaled_between_the_samples_are_another_model(
    model: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, rows = str(tmp_path / "mem.safetensors"), str(write_rows(tmp_path / "in.jsonl", [{"review": "fine"}]))
    assert run(["think", str(demos), "-m", str(model), "-T", "1", "-q", "-o", memory]) == 0
    before = open_model(ModelOptions(model=str(model))).identify()
    scale_between_samples(model / "model.safetensors")
    after = open_model(ModelOptions(model=str(model))).identify()
    assert (after.sampled_weights, after != before) == (before.sampled_weights, True)
    assert run(["predict", memory, rows, "-q"]) == 2
    assert "made by another model: weights differ; " in capsys.readouterr().err


def test_the_digest_of_samples_does_not_change(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(3000.0).view(30, 100), "b": torch.arange(7, dtype=torch.int16), "c": torch.zeros(0)}
    files = [tmp_path / "model.safetensors", tmp_path / "pytorch_model.bin"]
    save_file(tensors, files[0])
    files[1].write_bytes(bytes(range(256)) * 40)
    samples, _, whole = weights_sha256(files).partition(":")
    assert samples == "b7fb33213ce06a764c9f50ed1af28743570f5a669672c4c2bb1c884fa624d9d9"
    files[1].write_bytes(bytes(range(256)) * 39 + bytes(256))
    assert weights_sha256(files).partition(":")[2] != whole


def test_a_run_is_not_continued_with_weights_that_changed_between_the_samples(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = run_words(tmp_path, model, "-T", "1", "-q")
    assert run(command) == 0
    scale_between_samples(model / "model.safetensors")
    assert run(command) == 2
    assert "made with other weights than this command uses" in capsys.readouterr().err


def test_weights_are_read_once_and_again_when_a_file_has_changed(model: Path, opened: list[str]) -> None:
    files = weight_files(str(model), None)
    first = contents_sha256(files)
    assert opened
    fingerprint._digests.clear()  # as in another process
    opened.clear()
    assert (contents_sha256(files), opened) == (first, [])
    times = files[0].stat()
    scale_between_samples(files[0])
    os.utime(files[0], ns=(times.st_atime_ns, times.st_mtime_ns))
    second = contents_sha256(files)
    assert second != first
    shutil.copy2(files[0], model / "copy")
    os.replace(model / "copy", files[0])
    opened.clear()
    assert contents_sha256(files) == second
    assert opened
    os.utime(files[0])
    opened.clear()
    assert contents_sha256(files) == second
    assert opened


@pytest.mark.parametrize("kept", [b"", b"\xff" * 64, b"0" * 63, b"g" * 64, b"0" * 65])
def test_a_damaged_cache_is_not_believed(kept: bytes, model: Path, tmp_path: Path, opened: list[str]) -> None:
    files = weight_files(str(model), None)
    first = contents_sha256(files)
    (entry,) = (tmp_path / "cache" / "deepthink" / "weights").iterdir()
    fingerprint._digests.clear()
    entry.write_bytes(kept)
    assert contents_sha256(files) == first
    assert entry.read_text() == first


def test_a_cache_that_cannot_be_written_costs_time_alone(
    model: Path, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    files = weight_files(str(model), None)
    first = contents_sha256(files)
    opened.clear()
    assert (contents_sha256(files), opened) == (first, [])  # cached in this process


def test_a_file_that_has_just_changed_is_not_remembered(model: Path, opened: list[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(fingerprint, "_TIME_RESOLUTION", 10**12)
    files = weight_files(str(model), None)
    first = contents_sha256(files)
    opened.clear()
    assert contents_sha256(files) == first
    assert opened


def test_tensors_that_share_bytes_are_damage(model: Path) -> None:
    header = json.dumps(
        {str(n): {"dtype": "U8", "shape": [999], "data_offsets": [0, 999]} for n in range(100)}
    ).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(999))
    with pytest.raises(DeepThinkError, match=r"its tensors are larger than the file; get the whole checkpoint"):
        contents_sha256([model / "model.safetensors"])
