"""Whole-process time and peak memory of the commands that should be instant, and of predict as its input grows.

    python benchmarks/commands.py

Every command runs several times, in processes of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import Table, parser

ROOT = Path(__file__).resolve().parent.parent
REVIEWS = ROOT / "examples" / "reviews"
DEEPTHINK = [sys.executable, "-m", "deepthink_cli"]


def measured(arguments: list[str], runs: int) -> tuple[float, float, int]:
    """Median and worst wall seconds, and peak memory in bytes, after one run that is not counted."""
    seconds, peak = [], 0
    for _ in range(runs + 1):
        started = time.perf_counter()
        with subprocess.Popen([*DEEPTHINK, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"deepthink {' '.join(arguments)} ended with {child.returncode}")
        seconds.append(time.perf_counter() - started)
        peak = max(peak, usage.ru_maxrss * 1024)
    return statistics.median(seconds[1:]), max(seconds[1:]), peak


def inputs(folder: Path, count: int) -> str:
    """The labelled examples repeated to `count` rows."""
    rows = [json.loads(line) for line in (REVIEWS / "labelled.jsonl").read_text(encoding="utf-8").splitlines()]
    path = folder / f"{count}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps({"review": rows[number % len(rows)]["review"], "id": number}) + "\n")
    return str(path)


def main() -> None:
    """Measure, and show a row as soon as it is known."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="numbers of inputs for predict")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memory = str(folder / "mem.safetensors")
        think = ["think", str(REVIEWS / "demos.jsonl"), "-T", "5", "-o", memory]
        jobs = [(["--help"], args.runs), (["think", "--help"], args.runs), (think, args.runs)]
        jobs += [(["inspect", memory], args.runs), (["demo"], args.runs)]
        jobs += [(["predict", memory, inputs(folder, size), "-o", str(folder / "out.jsonl")], 1) for size in args.sizes]
        note = "Wall seconds of whole processes, and the largest peak memory in MiB."
        table = Table(args, "Commands on the built-in model", ("command", "median", "worst", "peak"), note=note)
        for arguments, runs in jobs:
            middle, worst, peak = measured(arguments, runs)
            shown = " ".join(Path(part).name for part in arguments)
            table.add(f"deepthink {shown}", middle, worst, peak / 2**20)


if __name__ == "__main__":
    main()
