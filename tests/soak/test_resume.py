"""Killed at any moment, cut at any byte: a run that is continued ends with the bytes of one that was not stopped."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from conftest import Models, Soak
from helpers.forks import Forks
from helpers.tiny import run_files, run_words

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.folder import LOCK, open_run_folder
from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.experiments.samples import samples_path


@dataclass
class Whole:
    """A run that nothing stopped: its words, its folder, the files in it, and the seconds that it took."""

    words: list[str]
    out: Path
    files: dict[str, bytes]
    seconds: float

    @property
    def last(self) -> int:
        """Where the last row begins."""
        return self.files[FILE].rindex(b"\n", 0, -1) + 1


@pytest.fixture(scope="module")
def finished(forks: Forks, models: Models, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Two seeds, two gates, T = 2, with every input's scores."""
    folder = tmp_path_factory.mktemp("finished")
    words = run_words(folder, models("llama"), "-T", "2", "--seeds", "2", "--eta", "0.01,0.3", "--samples", "-q")
    started = time.perf_counter()
    assert forks.run(words) == (0, "")
    return Whole(words, folder / "out", run_files(folder / "out"), time.perf_counter() - started)


@pytest.fixture
def whole(finished: Whole) -> Whole:
    """The run with its folder as it was."""
    shutil.rmtree(finished.out, ignore_errors=True)
    for name, content in finished.files.items():
        (finished.out / name).parent.mkdir(parents=True, exist_ok=True)
        (finished.out / name).write_bytes(content)
    return finished


def test_a_run_killed_at_any_moment_continues(forks: Forks, whole: Whole, soak: Soak) -> None:
    draw = soak.draw("killed run")
    for _ in range(soak.count(2, 15)):
        shutil.rmtree(whole.out)
        for _ in range(draw.randint(1, 3)):
            forks.start(whole.words).kill_after(draw.uniform(0.2, 1) * whole.seconds)
            found = run_files(whole.out) if whole.out.exists() else {}
            assert whole.files[FILE].startswith(found.get(FILE, b""))
        assert forks.run(whole.words) == (0, "")
        assert run_files(whole.out) == whole.files
        assert len(read_results(whole.out)) == len({row.key for row in read_results(whole.out)})


def test_the_temporary_folders_of_a_killed_run_go_when_it_is_continued(forks: Forks, whole: Whole) -> None:
    for folder in (whole.out, whole.out / "samples"):
        left = folder / ".inputs-0.parquet.deepthink-0123456789abcdef"
        left.mkdir()
        (left / "inputs-0.parquet.mode").touch()
    assert forks.run(whole.words) == (0, "")
    assert run_files(whole.out) == whole.files


def test_wherever_the_last_row_is_cut_the_rows_before_it_are_kept(whole: Whole, soak: Soak) -> None:
    content = whole.files[FILE]
    for cut in range(whole.last, len(content), soak.count(7, 1)):
        (whole.out / FILE).write_bytes(content[:cut])
        with open_run_folder(whole.out) as run_folder:
            assert (whole.out / FILE).read_bytes() == content[: whole.last]
            assert len(run_folder.done) == content.count(b"\n") - 1


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many as the uninterrupted run had."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_a_run_cut_at_any_byte_ends_with_the_same_bytes(whole: Whole, soak: Soak) -> None:
    content = whole.files[FILE]
    anywhere = soak.draw("cuts").sample(range(whole.last), soak.count(2, 15))
    for cut in (0, *anywhere, *range(whole.last, len(content) + 1, soak.count(150, 30))):
        (whole.out / FILE).write_bytes(content[:cut])
        assert run(whole.words) == 0
        assert run_files(whole.out) == whole.files


def test_samples_that_were_lost_with_their_row_are_written_again(whole: Whole, forks: Forks) -> None:
    last = read_results(whole.out)[-1]
    (whole.out / FILE).write_bytes(whole.files[FILE].removesuffix(last.line().encode()))
    kept = samples_path(whole.out, last)
    kept.unlink()
    (kept.parent / f".{kept.name}.deepthink-{1:016x}").mkdir()  # of the process that was killed
    assert forks.run(whole.words) == (0, "")
    assert run_files(whole.out) == whole.files
    assert len(os.listdir(kept.parent)) == len(whole.files) - 1


def test_a_second_process_is_refused_by_the_number_of_the_first_which_goes_on(forks: Forks, whole: Whole) -> None:
    shutil.rmtree(whole.out)
    first = forks.start(whole.words)
    assert first.until(lambda: (whole.out / LOCK).exists() and (whole.out / LOCK).read_text() != "")
    os.kill(first.number, signal.SIGSTOP)
    refused = f"another deepthink run (process {first.number}) writes there; wait for it, or name another folder"
    try:
        assert forks.run(whole.words) == (2, f"deepthink: -o {whole.out}: {refused}\n")
    finally:
        os.kill(first.number, signal.SIGCONT)
    assert first.wait() == 0
    assert run_files(whole.out) == whole.files
