"""Files that were written once are read, and what is written now is what was written.

`made_before/` holds what was made with the built-in model: a memory of `think demos.jsonl -T 2 --eta 0.1
--momentum 0.9 --positions restarted`, the labels of `predict mem.safetensors inputs.jsonl`, and the results of a run.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from helpers.by_hand import canonical
from helpers.tiny import run_words
from safetensors.numpy import load_file

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import FILE

OLD = Path(__file__).parent / "made_before"
THINK = "-T 2 --eta 0.1 --momentum 0.9 --positions restarted"
RUN = "-T 2 --eta 0.01,0.1 --momentum 0,0.9 --seeds 2 --choose-on dev --dev-size 6"
CHANGING = ("versions", "drift", "sha256")  # of the metadata: what wrote it, rounding, and a digest of both
Captured = pytest.CaptureFixture[str]


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file, in its order."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    parsed: dict[str, Any] = json.loads(content[8 : 8 + size])
    return parsed


def metadata(path: Path) -> dict[str, Any]:
    """What a memory says of itself."""
    parsed: dict[str, Any] = json.loads(header(path)["__metadata__"]["deepthink"])
    return parsed


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The memory, made again."""
    path = tmp_path_factory.mktemp("new") / "mem.safetensors"
    assert run(["think", str(OLD / "demos.jsonl"), *THINK.split(), "-q", "-o", str(path)]) == 0
    return path


def test_an_old_memory_predicts_what_it_predicted(capsys: Captured) -> None:
    assert run(["predict", str(OLD / "mem.safetensors"), str(OLD / "inputs.jsonl")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [json.loads(line) for line in (OLD / "labels.jsonl").read_text().splitlines()]
    for line, old in zip(lines, expected, strict=True):
        assert list(line) == list(old)
        assert line.pop("probability") == pytest.approx(old.pop("probability"), abs=1e-3)
        assert line.pop("scores") == pytest.approx(old.pop("scores"), abs=1e-3)
        assert line == old


def test_the_file_has_the_same_layout(new: Path) -> None:
    now, before = header(new), header(OLD / "mem.safetensors")
    text = now.pop("__metadata__").pop("deepthink")
    assert text == canonical(json.loads(text))
    assert before.pop("__metadata__").keys() == {"deepthink"}
    assert list(now.items()) == list(before.items())


def test_the_metadata_are_the_same(new: Path) -> None:
    now, before = metadata(new), metadata(OLD / "mem.safetensors")
    assert list(now) == list(before)
    for name in before["drift"]["2"]:
        assert now["drift"]["2"][name] == pytest.approx(before["drift"]["2"][name], abs=1e-5)
    for name in CHANGING:
        assert type(now.pop(name)) is type(before.pop(name))
    assert canonical(now) == canonical(before)


def test_the_memory_is_the_same_but_for_rounding(new: Path) -> None:
    now, before = load_file(new), load_file(OLD / "mem.safetensors")
    assert now.keys() == before.keys()
    for name in before:
        assert now[name] == pytest.approx(before[name], abs=1e-4), name


def test_an_old_run_is_complete_and_left_as_it_is(tmp_path: Path, capsys: Captured) -> None:
    words = run_words(tmp_path, Path("pocket"), *RUN.split())
    (tmp_path / "out").mkdir()
    shutil.copyfile(OLD / FILE, tmp_path / "out" / FILE)
    assert run(words) == 0
    assert "32 of 32 rows are there already" in " ".join("".join(capsys.readouterr()).split())
    assert (tmp_path / "out" / FILE).read_bytes() == (OLD / FILE).read_bytes()


def test_a_run_writes_the_lines_that_it_wrote(tmp_path: Path) -> None:
    assert run([*run_words(tmp_path, Path("pocket"), *RUN.split()), "--quiet"]) == 0
    lines, expected = ((folder / FILE).read_text().splitlines() for folder in (tmp_path / "out", OLD))
    for line, old in zip(map(json.loads, lines), map(json.loads, expected), strict=True):
        assert line.keys() == old.keys()
        assert line.pop("drift", None) == pytest.approx(old.pop("drift", None), abs=1e-5)
        assert len(line.pop("sha256")) == len(old.pop("sha256"))  # it covers the drift
        assert canonical(line) == canonical(old)
