"""Kill workers and the driver of a run at random moments, and compare its rows with those of a serial run.

    python benchmarks/cluster_kills.py --seed 0 --worker-kills 20 --driver-kills 10

Moments are drawn between 0 and the time that a run here takes to its first row, so that kills hit starting, loading,
reading and writing; `rows_at_kills` should stay below the number of rows, or give more --seeds. The same command
continues the run after each end of the driver. Exits with 1 if a row is lost, doubled or different, or if a worker
process outlives its driver. Linux only: finds the processes in /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TASK = """\
name: reviews
template: "Review: {text}\\nSentiment: {kind}"
labels: [negative, positive]
shots: 2
train: train.jsonl
test: test.jsonl
"""
WORDS = ["warm", "funny", "dull", "flat"]


class Killing:
    """One run into one folder, whose driver is started again until it ends by itself."""

    def __init__(self, command: list[str], out: Path, draw: random.Random) -> None:
        self.command, self.out, self.draw = command, out, draw
        self.starts, self.orphans = 0, 0
        self.start()

    def start(self) -> None:
        """Start the driver."""
        self.starts += 1
        self.driver = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)

    def rows(self) -> int:
        """The number of whole rows in the folder."""
        path = self.out / "results.jsonl"
        return path.read_bytes().count(b"\n") if path.is_file() else 0

    def wait(self, seconds: float) -> None:
        """Wait, and start the driver again if it ends before the end, as after too many deaths of one worker."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.driver.poll() is not None:
                self.start()
            time.sleep(0.02)

    def kill_worker(self, longest: float) -> None:
        """Kill one of the workers at a random moment."""
        self.wait(self.draw.uniform(0, longest))
        wait_until(lambda: bool(workers_of(self.driver.pid)) or self.driver.poll() is not None)
        if workers := workers_of(self.driver.pid):
            os.kill(self.draw.choice(workers), signal.SIGKILL)

    def kill_driver(self, longest: float) -> None:
        """Kill the driver at a random moment, wait for its workers to end, and start it again."""
        self.wait(self.draw.uniform(0, longest))
        workers = workers_of(self.driver.pid)
        self.driver.kill()
        self.driver.wait()
        time.sleep(1)
        self.orphans += sum(is_alive(worker) for worker in workers)
        self.start()

    def finish(self) -> None:
        """Let the run end, with another start if workers were killed too often for the first."""
        while self.driver.wait() != 0:
            self.start()


def workers_of(parent: int) -> list[int]:
    """The worker processes of a process."""
    workers = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status, words = (entry / "stat").read_text(), (entry / "cmdline").read_text()
            except OSError:
                continue
            if "executors.process" in words and int(status.rpartition(")")[2].split()[1]) == parent:
                workers.append(int(entry.name))
    return workers


def is_alive(process: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not condition():
        time.sleep(0.02)


def run_command(folder: Path, model: str, seeds: int, out: Path, *more: str) -> list[str]:
    """The command line of a run of the task in a folder."""
    words = ["run", "--task", str(folder / "reviews.yaml"), "-m", model, "-T", "2", "--seeds", str(seeds), "-q"]
    return [sys.executable, "-m", "deepthink_cli", *words, "--batch-tokens", "64", "-o", str(out), *more]


def write_task(folder: Path) -> None:
    """A task of made-up reviews."""
    for name, count in (("train", 40), ("test", 12)):
        rows = [
            {"text": f"a {WORDS[n % 4]} film {n}", "kind": ["positive", "negative"][n % 4 > 1]} for n in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reviews.yaml").write_text(TASK)


def main() -> None:
    """Run serially, then with kills; print what happened as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker-kills", type=int, default=20)
    parser.add_argument("--driver-kills", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=600, help="jobs of the run, each with two rows")
    parser.add_argument("--model", default="pocket")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_task(folder)
        subprocess.run(run_command(folder, given.model, given.seeds, folder / "serial"), check=True)
        started, out = time.monotonic(), folder / "killed"
        killing = Killing(run_command(folder, given.model, given.seeds, out, "--workers", "2"), out, draw)
        wait_until(lambda: killing.rows() > 0)
        longest = time.monotonic() - started
        kills = ["worker"] * given.worker_kills + ["driver"] * given.driver_kills
        draw.shuffle(kills)
        hit = []
        for kill in kills:
            (killing.kill_worker if kill == "worker" else killing.kill_driver)(longest)
            hit.append(killing.rows())
        killing.finish()
        serial, killed = ((folder / each / "results.jsonl").read_bytes().splitlines() for each in ("serial", "killed"))
        report = {
            "seed": given.seed,
            "worker_kills": given.worker_kills,
            "driver_kills": given.driver_kills,
            "driver_starts": killing.starts,
            "rows": len(serial),
            "rows_at_kills": hit,
            "lost": len(set(serial) - set(killed)),
            "doubled": len(killed) - len(set(killed)),
            "other": len(set(killed) - set(serial)),
            "orphans": killing.orphans,
            "longest_wait": round(longest, 1),
            "seconds": round(time.monotonic() - started, 1),
        }
    print(json.dumps(report))
    sys.exit(bool(report["lost"] or report["doubled"] or report["other"] or report["orphans"]))


if __name__ == "__main__":
    main()
