"""The cost of every selection method: rows observed, sets read, inputs scored, and processor seconds, without a cache.

    python -m benchmarks.table1.costs --model MODEL --data-dir DIR -o table1/NAME/costs.jsonl

Chooses 8 of 1,000 rows of SST-2 with each method, in a process with one thread. The seconds are those of the processor,
which other work on the machine hardly changes; docs/table1.md subtracts those of the method that reads nothing of the
model (random). Methods that are in the file, or in the table of its folder, are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.packing import continued
from benchmarks.table1.runs import DTYPE, POOL, SELECTING, STAGES

TASK, SHOTS = "sst2", "8"
FIELDS = ("method", "observed", "sets", "scored")


def measure(method: str, model: str, data_dir: Path | None) -> dict[str, float | str]:
    """The cost of one choice, and the processor seconds of the whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as cache:
        words = ["select", "--task", TASK, "--shots", SHOTS, "--pool-size", POOL, "--demos-by", method, "-m", model]
        words += ["--device", "cpu", "--dtype", DTYPE, "--cache", cache, "-o", f"{cache}/demos.jsonl"]
        words += ["--json", "--quiet"]
        words += ["--data-dir", str(data_dir)] if data_dir else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "deepthink_cli", *words], env=environment, check=True, capture_output=True, text=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = json.loads(done.stdout)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**{name: printed[name] for name in FIELDS}, "dtype": DTYPE, "process_seconds": round(seconds, 1)}


def main() -> None:
    """Measure the methods that are missing, the cheapest first, and append a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--stages", nargs="+", help="methods of these stages only", choices=STAGES, default=STAGES)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    with continued([args.out.parent]):
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.touch()
        known = {cost["method"] for cost in map(json.loads, args.out.read_text().splitlines())}
        for method in dict.fromkeys(name for stage in args.stages for name in SELECTING.get(stage, ())):
            if method not in known:
                cost = measure(method, args.model, args.data_dir)
                with open(args.out, "a") as out:
                    out.write(json.dumps(cost) + "\n")
                print(cost, flush=True)


if __name__ == "__main__":
    main()
