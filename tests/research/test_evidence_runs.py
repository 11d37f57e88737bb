"""The driver of the runs: their order, their demonstration files, and two at once but never in one folder."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from research.evidence.runs import all_jobs
from research.jobs import Job, Workplace, execute, finish


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
    jobs = list(all_jobs())[:2]
    with pytest.raises(SystemExit, match="False"):
        finish(place, jobs, 2)
    lines = [json.loads(line) for line in (tmp_path / "commands.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["arguments"], line["status"]) for line in lines] == [(shlex.join(job.arguments), 0) for job in jobs]
    assert all(0.3 <= line["processor_seconds"] < 5 for line in lines)
