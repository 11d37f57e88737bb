"""Damaged memories: none crashes, none hangs, none is accepted, each is one line."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Soak, readings_of, write_rows
from helpers.by_hand import canonical, signed
from helpers.said import Captured
from mutate import MUTATORS, compact, joined, parts

from deepthink_cli import DemonstrationSet, Method, load_memory, save_memory
from deepthink_cli.cli.main import run
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError


@pytest.fixture
def path(llama: Engine, reviews: DemonstrationSet, tmp_path: Path) -> Path:
    readings = list(readings_of(llama, reviews, Method(3)))
    save_memory(readings[1:], tmp_path / "mem.safetensors")
    return tmp_path / "mem.safetensors"


def refused(path: Path, capsys: Captured, *command: str) -> str:
    """Run a command that must refuse the file: exit 2, one line on stderr, nothing on stdout."""
    capsys.readouterr()
    assert run([*command]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"deepthink: {path}: ")
    return err


def test_no_mutation_is_taken_for_a_memory(path: Path, soak: Soak, capsys: Captured) -> None:
    draw, original = soak.draw("mutations"), path.read_bytes()
    inputs = str(write_rows(path.parent / "in.jsonl", [{"review": "fine"}]))
    reasons: Counter[str] = Counter()
    slowest = 0.0
    for number in range(soak.count(600, 10_000)):
        mutate = draw.choice(MUTATORS)
        if (data := mutate(original, draw)) == original:
            continue
        path.write_bytes(data)
        started = time.perf_counter()
        with pytest.raises(InputError) as caught:
            load_memory(path)
        slowest = max(slowest, time.perf_counter() - started)
        assert len(caught.value.messages) == 1, mutate.__name__
        if number % 20 == 0:
            reasons[refused(path, capsys, "inspect", str(path), "--verify").split(": ", 3)[2]] += 1
            refused(path, capsys, "predict", str(path), inputs)
    assert slowest < 5
    assert len(reasons) > 2
    path.write_bytes(original)
    load_memory(path)


def resigned(data: bytes, **changes: Any) -> bytes:
    """The file with other metadata, and a digest that fits: what only somebody who means harm would make."""
    header, body = parts(data)
    raw = json.loads(header)
    metadata = json.loads(raw["__metadata__"]["deepthink"]) | changes
    tensors = {name: entry for name, entry in raw.items() if name != "__metadata__"}
    text = canonical(signed(metadata, tensors, body))
    return joined(compact({"__metadata__": {"deepthink": text}, **tensors}), body)


def reshaped(data: bytes, *shape: int) -> bytes:
    """The file with every tensor in another shape of the same size."""
    header, body = parts(data)
    raw = json.loads(header)
    for name in raw:
        if name != "__metadata__":
            raw[name]["shape"] = list(shape)
    return resigned(joined(compact(raw), body))


def test_a_forged_memory_is_held_against_the_model(path: Path, capsys: Captured) -> None:
    original = path.read_bytes()
    inputs = str(write_rows(path.parent / "in.jsonl", [{"review": "fine"}]))
    metadata = json.loads(json.loads(parts(original)[0])["__metadata__"]["deepthink"])
    given, shape = metadata["demonstrations"], json.loads(parts(original)[0])["iteration.2.layer.0.keys"]["shape"]
    assert resigned(original) == original
    forged = {
        "fewer heads": reshaped(original, 1, shape[1], shape[0] * shape[2]),
        "more heads": reshaped(original, shape[0] * 2, shape[1], shape[2] // 2),
        "ids beyond the vocabulary": resigned(original, demonstrations={**given, "token_ids": [10**6] * shape[1]}),
        "a label with no tokens": resigned(original, labels=["positive", ""]),
    }
    for name, data in forged.items():
        path.write_bytes(data)
        assert refused(path, capsys, "predict", str(path), inputs), name


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_no_memory(path: Path, capsys: Captured) -> None:
    path.unlink()
    for make in (
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(path),
        lambda: path.symlink_to("/dev/zero"),
    ):
        make()
        refused(path, capsys, "inspect", str(path), "--verify")
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


HUGE = {
    "a million tensors": lambda: (
        "{"
        + ",".join(
            f'"t{n}":{{"dtype":"F32","shape":[1],"data_offsets":[{4 * n},{4 * n + 4}]}}' for n in range(1_000_000)
        )
        + "}"
    ),
    "empty lists": lambda: '{"__metadata__":{"deepthink":"' + "[" * 100 + ",".join(["[]"] * 5_000_000) + '"}}',
    "one long number": lambda: '{"a":' + "9" * 16_000_000 + "}",
    "deep objects": lambda: '{"a":' * 3_000_000 + "1" + "}" * 1_000_000,
}


@pytest.mark.soak
@pytest.mark.parametrize("kind", HUGE)
def test_a_huge_header_costs_neither_time_nor_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mem.safetensors"
    text = HUGE[kind]().encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    # Not ru_maxrss, in which a process starts with the peak of the one that it was forked from.
    peak_line = "next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))"
    program = (
        "import sys; from deepthink_cli.cli.main import run; "
        f"code = run(sys.argv[1:]); print(code, {peak_line}.split()[1])"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, "inspect", str(path)], capture_output=True, text=True, timeout=60
    )
    code, peak = map(int, done.stdout.split())
    assert code == 2
    assert done.stderr.count("\n") == 1
    assert time.perf_counter() - started < 10
    assert peak < 800 * 1024  # KiB
