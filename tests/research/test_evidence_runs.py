"""The driver of the runs: their order, their demonstration files, and two at once but never in one folder."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from research.evidence.runs import AT, all_jobs
from research.jobs import Job, Workplace, execute, finish


def test_the_grid_comes_first_seed_by_seed_and_stages_are_not_mixed() -> None:
    jobs = all_jobs()
    stages = [job.stage for job in jobs]
    assert stages == sorted(stages, key=list(dict.fromkeys(stages)).index)
    grid = [job for job in jobs if job.stage == "grid"]
    assert jobs[: len(grid)] == grid
    assert [job.folder for job in grid] == ["continued", "restarted", "official"] * 5
    seeds = [int(job.arguments[job.arguments.index("--seeds") + 1].rstrip(",")) for job in grid]
    assert all(first <= second for first, second in pairwise(seeds))


def test_every_command_of_a_folder_scores_the_same_rows_and_one_reading_too() -> None:
    scored: dict[str, set[tuple[str, ...]]] = {}
    for job in all_jobs():
        words = dict(pairwise(job.arguments))
        at, rows = words.get("--at", "1"), words.get("--limit", "all")
        assert at.split(",")[0] == "1"
        scored.setdefault(job.folder, set()).add((at, rows))
    assert all(len({rows for _, rows in each}) == 1 for each in scored.values())
    assert scored["continued"] == {(AT, "300")}


def test_methods_are_run_seed_by_seed_so_that_all_have_the_same_seeds() -> None:
    jobs = [job for job in all_jobs() if job.stage == "methods"]
    assert [job.folder for job in jobs] == ["random", "techniques", "choices", "choices"] * 10
    seeds = [job.arguments[job.arguments.index("--seeds") + 1] for job in jobs]
    assert seeds == [f"{place // 4}," for place in range(40)]


def test_commands_have_relative_paths_but_the_models_and_a_name_that_finds_their_process(tmp_path: Path) -> None:
    model, place = tmp_path / "tiny.gguf", tmp_path / "place"
    model.touch()
    place.mkdir()
    command = Workplace.at(place, str(model), tmp_path, tmp_path / "out", "float32", "evidence_job").command(
        "flipped", ("--demos", "demonstrations/x.jsonl")
    )
    assert "evidence_job" in command
    assert command[command.index("-m", command.index("run")) + 1] == str(model)
    assert command[command.index("--demos") + 1] == "out/demonstrations/x.jsonl"
    assert [word for word in command[1:] if str(tmp_path) in word] == [str(model)]
    assert (place / "data").samefile(tmp_path)


def test_a_job_with_a_dtype_of_its_own_keeps_it(tmp_path: Path) -> None:
    place = Workplace.at(tmp_path, "gpt2", None, tmp_path / "out", "bfloat16", "evidence_job")
    dtypes: dict[str, str] = {}
    for job in all_jobs():
        command = place.command(job.folder, job.arguments)
        assert command.count("--dtype") == 1
        dtypes[job.stage] = command[command.index("--dtype") + 1]
    in_grids_dtype = [stage for stage, dtype in dtypes.items() if dtype == "bfloat16"]
    assert in_grids_dtype == ["grid"]
    assert set(dtypes.values()) == {"bfloat16", "float32"}


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_run_side_by_side_but_never_in_one_folder(workers: int) -> None:
    started: list[Job] = []
    running: list[tuple[Job, subprocess.Popen[bytes]]] = []

    def start(job: Job) -> subprocess.Popen[bytes]:
        busy = [other.folder for other, process in running if process.poll() is None]
        assert job.folder not in busy
        assert len(busy) < workers
        script = "import sys, time; time.sleep(0.1); sys.exit(int(sys.argv[1]))"
        process = subprocess.Popen([sys.executable, "-c", script, str(int("--fails" in job.arguments))])
        started.append(job)
        running.append((job, process))
        return process

    fails = Job("grid", "a", ("--fails",))
    jobs = [Job("grid", "a"), fails, *(Job("grid", folder) for folder in "bbc")]
    ended: list[tuple[Job, int]] = []
    failed = execute(jobs, start, lambda job, status, seconds: ended.append((job, status)), workers, poll=0.01)
    assert failed == [fails]
    assert sorted(status for _, status in ended) == [0, 0, 0, 0, 1]
    assert sorted(started, key=lambda job: job.folder) == sorted(jobs, key=lambda job: job.folder)
    if workers == 1:
        assert started == jobs


def test_every_command_that_ends_says_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Workplace.at(tmp_path, "gpt2", None, tmp_path, "bfloat16", "evidence_job")
    busy = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    monkeypatch.setattr(Workplace, "command", lambda *_: [sys.executable, "-c", busy])
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    jobs = [job for job in all_jobs() if job.stage == "grid"][:2]
    with pytest.raises(SystemExit, match="False"):
        finish(place, jobs, 2)
    lines = [json.loads(line) for line in (tmp_path / "commands.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["arguments"], line["status"]) for line in lines] == [(shlex.join(job.arguments), 0) for job in jobs]
    assert all(0.3 <= line["processor_seconds"] < 5 for line in lines)
