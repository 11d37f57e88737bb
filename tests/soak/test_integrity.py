"""Damaged memories: none crashes, none hangs, none is accepted, each is one line."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Soak, readings_of, write_rows
from helpers import said
from helpers.by_hand import parts, write_parts
from helpers.said import Captured

from deepthink_cli import DemonstrationSet, Method, load_memory, save_memory
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError


@pytest.fixture
def path(llama: Engine, reviews: DemonstrationSet, tmp_path: Path) -> Path:
    readings = list(readings_of(llama, reviews, Method(3)))
    save_memory(readings[1:], tmp_path / "mem.safetensors")
    return tmp_path / "mem.safetensors"


def refused(path: Path, capsys: Captured, *command: str) -> str:
    """The one line of a command that must refuse the file."""
    line = said.refused(capsys, *command)
    assert line.startswith(f"deepthink: {path}: ")
    return line


def flipped_bits(data: bytes, draw: random.Random) -> bytes:
    """One to eight bits anywhere, or in the header and its length."""
    end = draw.choice([len(data), 8 + struct.unpack("<Q", data[:8])[0]])
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        changed[draw.randrange(end)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def other_stretch(data: bytes, draw: random.Random) -> bytes:
    """A stretch overwritten, left out, or added, in the middle or at the end."""
    start, taken, put = draw.choice([draw.randrange(len(data)), len(data)]), *draw.choices([0, 1, 4, 8, 4096], k=2)
    return data[:start] + draw.randbytes(put) + data[start + taken :]


def truncated(data: bytes, draw: random.Random) -> bytes:
    """Only the beginning."""
    return data[: draw.randrange(len(data))]


def swapped(data: bytes, draw: random.Random) -> bytes:
    """Two stretches of the tensors' bytes in each other's place."""
    count, start = draw.choice([4, 16, 64]), 8 + struct.unpack("<Q", data[:8])[0]
    one, two = sorted(draw.sample(range(start, len(data) - count, count), 2))
    return (
        data[:one] + data[two : two + count] + data[one + count : two] + data[one : one + count] + data[two + count :]
    )


def test_no_mutation_is_taken_for_a_memory(path: Path, soak: Soak, capsys: Captured) -> None:
    draw, original = soak.draw("mutations"), path.read_bytes()
    inputs = str(write_rows(path.parent / "in.jsonl", [{"review": "fine"}]))
    reasons: Counter[str] = Counter()
    slowest = 0.0
    for number in range(soak.count(600, 10_000)):
        mutate = draw.choice([flipped_bits, other_stretch, truncated, swapped])
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


def test_a_forged_memory_is_held_against_the_model(path: Path, capsys: Captured) -> None:
    inputs = str(write_rows(path.parent / "in.jsonl", [{"review": "fine"}]))
    original = path.read_bytes()
    metadata, tensors, body = parts(path)
    heads, length, size = tensors["iteration.2.layer.0.keys"]["shape"]
    given = {**metadata["demonstrations"], "token_ids": [10**6] * length}
    forged: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [1, length, heads * size]),
        ({}, [heads * 2, length, size // 2]),
        ({"demonstrations": given}, [heads, length, size]),  # ids beyond the vocabulary
        ({"labels": ["positive", ""]}, [heads, length, size]),
    ]
    assert write_parts(path, metadata, tensors, body).read_bytes() == original
    for changes, shape in forged:
        shaped = {name: {**entry, "shape": shape} for name, entry in tensors.items()}
        write_parts(path, {**metadata, **changes}, shaped, body)
        refused(path, capsys, "predict", str(path), inputs)


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
