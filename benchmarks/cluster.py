"""What workers cost and gain: two of one thread against one process of one thread, and the overhead of a unit.

    python benchmarks/cluster.py --task classic --data-dir DIR -m MODEL [--seeds 4] [--limit 500] [-T 5]

Prints one JSON object: seconds of each run with and without what happens before the first row (imports, loading), the
speedup, the overhead of a unit (from a run whose units score one input), and how often models were loaded. Run it on a
quiet machine: `load` is the load average before each run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SUMMARY = re.compile(r"(\d+) units done, models loaded (\d+) times")


def timed(words: list[str], out: Path, *more: str) -> dict[str, float]:
    """Run a command; its seconds in all and after its first row, its units and loads of models, and the load before."""
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "deepthink_cli", "run", *words, "-o", str(out), *more]
    started, first = time.perf_counter(), None
    with tempfile.TemporaryFile() as errors:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stderr=errors, env=environment)
        while process.poll() is None:
            path = out / "results.jsonl"
            if first is None and path.is_file() and path.stat().st_size:
                first = time.perf_counter()
            time.sleep(0.01)
        ended = time.perf_counter()
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    if process.returncode:
        sys.exit(text)
    units, loads = (
        map(int, (SUMMARY.search(text) or re.match("()()", "")).groups("0")) if "units done" in text else (0, 1)
    )
    working = ended - (started if first is None else first)
    return {"seconds": ended - started, "after_first_row": working, "units": units, "loads": loads, "load": load}


def main() -> None:
    """Time the runs and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="classic")
    parser.add_argument("--data-dir")
    parser.add_argument("-m", "--model", default="pocket")
    parser.add_argument("--seeds", default="4")
    parser.add_argument("--limit", default="500")
    parser.add_argument("-T", "--iterations", default="5")
    given = parser.parse_args()
    words = ["--task", given.task, "-m", given.model, "--seeds", given.seeds]
    words += ["--data-dir", given.data_dir] if given.data_dir else []
    measured = [*words, "-T", given.iterations, "--limit", given.limit]
    small = [*words, "-T", "1", "--limit", "1", "--shots", "1", "--batch-tokens", "64"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = timed(measured, folder / "one")
        two = timed(measured, folder / "two", "--workers", "2")
        serial = timed(small, folder / "small-one")
        workers = timed(small, folder / "small-two", "--workers", "1")
        same = [sorted((folder / each / "results.jsonl").read_bytes().splitlines()) for each in ("one", "two")]
    overhead = (workers["after_first_row"] - serial["after_first_row"]) / max(1, workers["units"])
    report = {
        "one_process": one,
        "two_workers": two,
        "speedup": one["seconds"] / two["seconds"],
        "speedup_after_first_row": one["after_first_row"] / two["after_first_row"],
        "overhead_of_a_unit_ms": 1000 * overhead,
        "rows_equal": same[0] == same[1],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
