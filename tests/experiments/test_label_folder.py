"""A folder of Parquet files is labelled by workers, file by file, and continued."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch
from helpers import vllm_alike
from helpers.folders import memory_and_folder, scores_in
from helpers.inline_workers import InlineExecutor

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.events import silent
from deepthink_cli.experiments.executors.messages import Died
from deepthink_cli.experiments.label_folder import FolderCounts, FolderLabels, label_folder
from deepthink_cli.model.options import ModelOptions


@pytest.fixture
def job(tmp_path: Path) -> FolderLabels:
    memory, inputs = memory_and_folder(tmp_path)
    return FolderLabels(memory, str(inputs), str(tmp_path / "labels"))


def times(folder: str) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()}


def test_a_folder_is_labelled_as_its_files_are(job: FolderLabels, tmp_path: Path) -> None:
    assert label_folder(job, nullcontext(InlineExecutor(2)), silent).rows == 12
    alone = tmp_path / "alone.parquet"
    assert run(["predict", job.memory, f"{job.inputs}/part-1.parquet", "-o", str(alone), "-q"]) == 0
    assert Path(job.output, "part-1.parquet").read_bytes() == alone.read_bytes()


def test_every_worker_scores_with_a_vllm_of_its_own(
    job: FolderLabels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label_folder(job, nullcontext(InlineExecutor(1)), silent)
    monkeypatch.setitem(sys.modules, "vllm", vllm_alike)
    started = list[str]()
    monkeypatch.setattr(vllm_alike, "STARTED", started)
    options = ModelOptions.checked(model="pocket", engine="vllm")
    theirs = replace(job, output=str(tmp_path / "theirs"), options=options)
    assert label_folder(theirs, nullcontext(InlineExecutor(2)), silent).rows == 12
    assert len(started) == 2
    for name in ("part-0.parquet", "part-1.parquet", "part-2.parquet"):
        found, ours = (scores_in(Path(folder, name)) for folder in (theirs.output, job.output))
        assert found == pytest.approx(ours, abs=1e-4)


def test_workers_that_share_a_gpu_start_no_vllm(
    job: FolderLabels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", vllm_alike)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: 0.5)
    options = ModelOptions.checked(model="pocket", engine="vllm")
    theirs = replace(job, output=str(tmp_path / "theirs"), options=options)
    with pytest.raises(InputError, match="vLLM takes a whole one"):
        label_folder(theirs, nullcontext(InlineExecutor(2)), silent)


@pytest.mark.soak
def test_a_folder_is_labelled_by_processes(job: FolderLabels, tmp_path: Path) -> None:
    assert run(["predict", job.memory, job.inputs, "-o", job.output, "-q", "--workers", "2"]) == 0
    label_folder(replace(job, output=str(tmp_path / "inline")), nullcontext(InlineExecutor(1)), silent)
    for name in ("part-0.parquet", "part-1.parquet", "part-2.parquet"):
        assert Path(job.output, name).read_bytes() == (tmp_path / "inline" / name).read_bytes()


def test_a_file_whose_worker_died_is_labelled_by_another(job: FolderLabels) -> None:
    executor = InlineExecutor(1, lambda life, message, event: [Died("was killed")] if life == 1 else [event])
    assert label_folder(job, nullcontext(executor), silent) == FolderCounts(files=3, kept=0, rows=12, errors=0)
    assert executor.lives == 2


def test_a_bad_file_is_one_line_and_the_others_are_labelled(job: FolderLabels) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"words": ["a", "b"]}), f"{job.inputs}/part-1.parquet")
    with pytest.raises(InputError) as caught:
        label_folder(job, nullcontext(InlineExecutor(1)), silent)
    (line,) = caught.value.messages
    assert line.startswith(f"{job.inputs}/part-1.parquet:1: ")
    assert line.endswith("(and 1 more lines)")
    assert {path.name for path in Path(job.output).glob("*.parquet")} == {"part-0.parquet", "part-2.parquet"}


def test_nothing_is_started_for_labels_that_are_there(job: FolderLabels) -> None:
    label_folder(job, nullcontext(InlineExecutor(1)), silent)
    executor, before = InlineExecutor(1), times(job.output)
    assert label_folder(job, nullcontext(executor), silent) == FolderCounts(files=0, kept=3, rows=0, errors=0)
    assert executor.lives == 0
    assert times(job.output) == before


def test_the_labels_of_a_folder_need_a_folder(job: FolderLabels, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", job.memory, job.inputs, "--workers", "2"]) == 2
    assert "--workers 2: labels a folder of Parquet files into another; give predict" in capsys.readouterr().err


def test_the_form_of_standard_output_is_not_that_of_a_folder(
    job: FolderLabels, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", job.memory, job.inputs, "-o", job.output, "--workers", "2", "--output-format", "csv"]
    assert run(words) == 2
    assert "--output-format: not with --workers, which labels the files of a folder" in capsys.readouterr().err
