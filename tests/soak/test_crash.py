"""Killed at any moment, or on a full disk: a file is the old one or the new one, and nothing is left beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Models, Soak, write_rows
from helpers.families import write_model
from helpers.forks import Forks, leave
from helpers.tiny import GOOD, run_files, run_words

from deepthink_cli.experiments.results import FILE

OLD = b"what was there before"
STEP, PAGE = 64 * 1024, 4096  # bytes: how finely a disk is filled
REFUSED = {"full": "No space left on device", "limited": "File too large"}


@dataclass
class Written:
    """A memory that took no harm: the words that write one, its file, its bytes, and the seconds that it took."""

    words: list[str]
    path: Path
    content: bytes
    seconds: float
    writing: float


@dataclass
class Place:
    """A folder in which only so much can be written: its disk is filled, or the size of files is limited."""

    forks: Forks
    folder: Path
    seen: Path
    kind: str

    def run(self, words: list[str], limit: int | None = None) -> tuple[int, str]:
        """Run a command line that can write `limit` bytes (None: all it wants)."""
        if self.kind == "limited":
            return self.forks.run(words, largest=limit)
        leave(self.seen.parent, limit)
        return self.forks.run(words)


@pytest.fixture(scope="module")
def written(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Ten iterations of a memory, some megabytes."""
    folder = tmp_path_factory.mktemp("written")
    wide = {"num_key_value_heads": 4, "num_hidden_layers": 4, "max_position_embeddings": 2048}
    demos = [{"review": f"a {GOOD[n % 8]} film, number {n}", "kind": ("good", "bad")[n % 2]} for n in range(24)]
    words = f"think {write_rows(folder / 'demos.jsonl', demos)} -T 10 --keep all -q".split()
    words += ["-m", str(write_model(folder / "model", "llama", **wide)), "-o"]
    path = folder / "out" / "mem.safetensors"
    path.parent.mkdir()
    child = forks.start([*words, str(path)])
    assert child.until(lambda: any(path.parent.iterdir()))
    begun = time.perf_counter()
    assert child.wait() == 0
    ended = time.perf_counter()
    return Written(words, path, path.read_bytes(), ended - child.started, ended - begun)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file alone in its folder."""
    path = tmp_path / "out" / "mem.safetensors"
    path.parent.mkdir()
    path.write_bytes(OLD)
    return path


@pytest.fixture(params=REFUSED)
def place(request: pytest.FixtureRequest, forks: Forks, tmp_path: Path) -> Iterator[Place]:
    """A folder on a disk that can be filled, and one where the size of files is limited."""
    if request.param == "limited":
        yield Place(forks, tmp_path, tmp_path, request.param)
        return
    if forks.disk is None:
        pytest.skip("this system lets us mount no disk")
    folder = forks.disk / "place"
    seen = forks.seen(folder)
    seen.mkdir()
    yield Place(forks, folder, seen, request.param)
    shutil.rmtree(seen)
    leave(seen.parent, None)


def writes(target: Path) -> Callable[[], bool]:
    """A function that says whether a new folder has come up beside a target."""
    before = set(os.listdir(target.parent))
    return lambda: not before.issuperset(os.listdir(target.parent))


def test_a_memory_is_the_old_or_the_new_one_whenever_its_writer_is_killed(
    forks: Forks, written: Written, target: Path, soak: Soak
) -> None:
    draw = soak.draw("killed think")
    target.unlink()
    assert forks.run(["1" if word == "10" else word for word in (*written.words, str(target))]) == (0, "")
    old = target.read_bytes()
    for number in range(soak.count(2, 100)):
        begun = writes(target)
        child = forks.start([*written.words, str(target)])
        if number % 4 == 0:
            child.kill_after(draw.uniform(0, written.seconds))
        else:
            child.until(begun)
            time.sleep(draw.uniform(0, written.writing))
            child.kill()
        found = target.read_bytes()
        assert found in (old, written.content)
        target.write_bytes(old)
    assert forks.run([*written.words, str(target)]) == (0, "")
    assert target.read_bytes() == written.content
    assert os.listdir(target.parent) == [target.name]


WRITER = """
import os, sys
from deepthink_cli.io.atomic import writing
for _ in range(int(sys.argv[2])):
    with writing(sys.argv[1]) as file:
        file.write(f"{os.getpid()}\\n" * 1000)
"""


def test_processes_that_write_one_file_leave_each_others_work_alone(target: Path, soak: Soak) -> None:
    words = [sys.executable, "-c", WRITER, str(target), str(soak.count(100, 1000))]
    writers = [subprocess.Popen(words) for _ in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    lines = target.read_text().splitlines()
    assert len(lines) == 1000
    assert len(set(lines)) == 1
    assert os.listdir(target.parent) == [target.name]


def commands(written: Written, folder: Path) -> dict[str, list[str]]:
    """Words of commands that write a file, whose name comes last."""
    rows = [{"review": f"a {GOOD[n % 8]} film", "note": "x" * 4000} for n in range(64)]
    inputs = write_rows(folder / "inputs.jsonl", rows)
    # With --calibrate, even none, predict does not advise a calibration on stderr.
    predict = ["predict", str(written.path), str(inputs), "-q", "--calibrate", "none", "-o"]
    return {"think": written.words, "predict": predict}


@pytest.mark.parametrize("command", [pytest.param("think", marks=pytest.mark.soak), "predict"])
def test_a_disk_that_fills_up_leaves_the_old_file(
    place: Place, command: str, written: Written, tmp_path: Path, soak: Soak
) -> None:
    words, whole = commands(written, tmp_path)[command], tmp_path / "whole"
    (place.seen / "out").mkdir()
    name, seen = str(place.folder / "out" / "file"), place.seen / "out" / "file"
    old = written.content if command == "think" else OLD  # a memory replaces a memory alone
    seen.write_bytes(old)
    words = [*words[:-1], "-T", "9", "-o"] if command == "think" else words
    assert place.forks.run([*words, str(whole)]) == (0, "")
    assert whole.read_bytes() != old
    steps = range(1, -(-whole.stat().st_size // STEP))  # in 64 KiB: all that is too little
    draw = soak.draw(f"full disk {command}")
    for step in draw.sample(steps, soak.count(1, len(steps))):
        refused = f"deepthink: -o {name}: cannot be written: {REFUSED[place.kind]}\n"
        assert place.run([*words, name], step * STEP) == (1, refused)
        assert seen.read_bytes() == old
        assert os.listdir(seen.parent) == ["file"]
    assert place.run([*words, name], (steps.stop + 1) * STEP) == (0, "")
    assert seen.read_bytes() == whole.read_bytes()
    assert os.listdir(seen.parent) == ["file"]


def test_a_run_goes_on_when_its_disk_has_room_again(place: Place, models: Models, tmp_path: Path, soak: Soak) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "3", "--seeds", "2", "--samples", "--quiet")
    assert place.forks.run(words) == (0, "")
    whole = run_files(tmp_path / "out")
    out, seen = place.folder / "run", place.seen / "run"
    words += ["-o", str(out)]
    limit, continued = 0 if place.kind == "full" else PAGE, False
    while (done := place.run(words, limit)) != (0, ""):
        code, said = done
        assert (code, said.count("\n")) == (1, 1)
        assert str(out) in said
        assert f"cannot be written: {REFUSED[place.kind]}" in said
        continued |= "the same command continues the run" in said
        found = run_files(seen)
        assert whole[FILE].startswith(found.pop(FILE))
        assert found.items() <= whole.items()
        assert place.run(words) == (0, "")
        assert run_files(seen) == whole
        shutil.rmtree(seen)
        limit += PAGE * soak.count(64, 1)
    assert run_files(seen) == whole
    assert continued


def test_a_disk_that_can_only_be_read_is_refused(forks: Forks, written: Written) -> None:
    if forks.disk is None:
        pytest.skip("this system lets us mount no disk")
    sealed = forks.disk / "sealed"
    refused = f"deepthink: -o {sealed}/mem: the directory {sealed} is not writable\n"
    assert forks.run([*written.words, f"{sealed}/mem"]) == (2, refused)
