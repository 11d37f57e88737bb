"""Commands of `deepthink run`: a few at once, never two in one folder, and what each of them took."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import processor
from research.packing import continued

ROOT = Path(__file__).resolve().parents[1]
DATA, OUT = "data", "out"
COMMANDS = "commands.jsonl"  # in the folder of the results: the commands that ended, and what they took


@dataclass(frozen=True)
class Job:
    """One `deepthink run` command: the stage it belongs to, its folder, and its other arguments.

    If the first argument is a study, it is a `deepthink study run` command.
    """

    stage: str
    folder: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.stage} {self.folder} {shlex.join(self.arguments)}"


@dataclass(frozen=True)
class Workplace:
    """A temporary folder with links to the data and the evidence.

    Commands run in it with relative paths, because samples contain the rows' paths. A result contains the absolute path
    of a local model, and its key depends on it: give the model the same path whenever runs are continued.
    """

    folder: Path
    model: str
    data_dir: str | None
    dtype: str
    name: str

    @classmethod
    def at(cls, folder: Path, model: str, data_dir: Path | None, out: Path, dtype: str, name: str) -> Workplace:
        """Create the links in an empty folder; a model that is neither a file nor a folder is a hub id."""
        (folder / OUT).symlink_to(out.resolve())
        if data_dir is not None:
            (folder / DATA).symlink_to(data_dir.resolve())
        named = str(Path(model).absolute()) if Path(model).exists() else model
        return cls(folder, named, DATA if data_dir else None, dtype, name)

    def command(self, folder: str, arguments: Sequence[str]) -> list[str]:
        """The command of one run; `-X NAME` has no effect but to name the process."""
        paths = [f"{OUT}/{word}" if before == "--demos" else word for before, word in _pairs(arguments)]
        data = ["--data-dir", self.data_dir] if self.data_dir else []
        of_a_study = bool(arguments) and not arguments[0].startswith("-")
        command = ["study", "run", paths.pop(0)] if of_a_study else ["run"]
        program = [sys.executable, "-X", self.name, "-m", "deepthink_cli", *command, "-m", self.model, *data]
        dtype = [] if "--dtype" in arguments else ["--dtype", self.dtype]
        return [*program, *paths, *dtype, "--samples", "--quiet", "-o", f"{OUT}/{folder}"]

    def start(self, folder: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start one run with a single thread."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        return subprocess.Popen(self.command(folder, arguments), cwd=self.folder, env=environment)


def parser_of(description: str, stages: Sequence[str], name: str) -> argparse.ArgumentParser:
    """The options of a program that runs stages of jobs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder, GGUF file or hub id")
    parser.add_argument("--data-dir", type=Path, help="the tasks' rows; without it they come from the hub")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--stages", nargs="+", choices=stages, default=stages, help="only these; default: all")
    parser.add_argument("--workers", type=int, default=2, help="single-threaded processes at once")
    parser.add_argument("--name", default=name, help="word in the command line of every process")
    parser.add_argument("--print", action="store_true", help="only print the commands")
    return parser


def run_jobs(args: argparse.Namespace, jobs: Sequence[Job], dtype: str, folders: Collection[Path]) -> None:
    """Execute jobs by the options of `parser_of`, or print them; `folders` are unpacked before, and packed after."""
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace.at(Path(folder), args.model, args.data_dir, args.out, dtype, args.name)
        if args.print:
            for job in jobs:
                print(shlex.join(place.command(job.folder, job.arguments)))
            return
        with continued(folders):
            args.out.mkdir(parents=True, exist_ok=True)
            finish(place, jobs, args.workers)


def execute(
    jobs: Iterable[Job],
    start: Callable[[Job], subprocess.Popen[bytes]],
    ended: Callable[[Job, int, float], None],
    workers: int = 2,
    poll: float = 1.0,
) -> list[Job]:
    """Run all jobs in order, each as soon as a worker and its folder are free; returns those that failed.

    `ended` is told of each job, its exit status and its processor seconds. If this process is interrupted, so are the
    running jobs; they keep the rows they have written.
    """
    waiting, failed = list(jobs), list[Job]()
    running: list[tuple[Job, subprocess.Popen[bytes]]] = []
    try:
        while waiting or running:
            for job, process in [*running]:
                before = _seconds_of_children()
                if process.poll() is not None:  # the only child whose seconds were added
                    running.remove((job, process))
                    ended(job, process.returncode, _seconds_of_children() - before)
                    failed += [job] * bool(process.returncode)
            busy = {job.folder for job, _ in running}
            free = next((job for job in waiting if job.folder not in busy), None)
            if free is not None and len(running) < workers:
                waiting.remove(free)
                running.append((free, start(free)))
            else:
                time.sleep(poll)
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            process.wait()
    return failed


def finish(place: Workplace, jobs: Sequence[Job], workers: int) -> None:
    """Execute all jobs at low priority, name the commands that failed, and end this process with 1 if any did.

    Each command that ends adds a line to `commands.jsonl`; one that was interrupted adds none.
    """
    os.nice(10)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def ended(job: Job, status: int, seconds: float) -> None:
        took = {"folder": job.folder, "arguments": shlex.join(job.arguments), "status": status}
        took |= {"processor_seconds": round(seconds, 1), "processor": processor()}
        with (place.folder / OUT / COMMANDS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(took) + "\n")
        ending = "done" if status == 0 else f"exit status {status}"
        print(f"{time.strftime('%H:%M')} {job}: {ending} after {seconds / 60:.0f} min of a core", flush=True)

    failed = execute(jobs, lambda job: place.start(job.folder, job.arguments), ended, workers)
    for job in failed:
        print(f"failed: {shlex.join(place.command(job.folder, job.arguments))}", file=sys.stderr)
    sys.exit(bool(failed))


def _seconds_of_children() -> float:
    """The processor seconds of the child processes that have been waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))
