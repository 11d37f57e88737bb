"""What every choice of demonstrations and every technique costs: texts read, and processor seconds, without a cache.

    python -m research.table1.costs --model MODEL --data-dir DIR -o research/tables/table1/NAME/costs.jsonl

Chooses 8 of 1,000 rows of SST-2 with each method, and makes a memory of 8 with each technique and labels one input, in
a process with one thread. The seconds are those of the processor, which other work on the machine hardly changes;
docs/table1.md subtracts those of the method that reads nothing of the model (random), and for techniques those of one
reading. What is in the file, or in the table of its folder, is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from research.evidence.methods import TECHNIQUES, T
from research.packing import continued
from research.table1.page import ONCE, THINKING
from research.table1.runs import DTYPE, POOL, SELECTING, STAGES

DRAWN = ("--task", "sst2", "--shots", "8")
FIELDS = ("method", "observed", "sets", "scored")
READ = {ONCE: ("deep-thinking", 1), THINKING: ("deep-thinking", T), **{name: (name, 1) for name in TECHNIQUES}}


def of_choice(method: str, common: Sequence[str]) -> dict[str, float | str]:
    """The cost of one choice, and the processor seconds of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("--demos-by", method, "--pool-size", POOL, "-o", f"{folder}/demos.jsonl", "--json")
        printed, seconds = _program("select", *common, *words, cache=folder)
    return {**{name: json.loads(printed)[name] for name in FIELDS}, "dtype": DTYPE, "process_seconds": seconds}


def of_technique(name: str, common: Sequence[str]) -> dict[str, float | str]:
    """The processor seconds of a process that makes a memory of random demonstrations and labels one input."""
    technique, readings = READ[name]
    with tempfile.TemporaryDirectory() as folder:
        words = ("--technique", technique, "-T", str(readings), "--seeds", "0,", "--limit", "1", "-o", f"{folder}/runs")
        seconds = _program("run", *common, "--demos-by", "random", *words)[1]
    return {"method": name, "dtype": DTYPE, "process_seconds": seconds}


def _program(*words: str, cache: str = "") -> tuple[str, float]:
    """What a command of the program prints, and its processor seconds; `cache` is the folder of its cache."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "deepthink_cli", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DEEPTHINK_CACHE": cache}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def main() -> None:
    """Measure what is missing, techniques first and then choices from the cheapest, and append a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--stages", nargs="+", help="choices of these stages only", choices=STAGES, default=STAGES)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    with continued([args.out.parent]):
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.touch()
        known = {cost["method"] for cost in map(json.loads, args.out.read_text().splitlines())}
        source = () if args.data_dir is None else ("--data-dir", str(args.data_dir))
        common = (*DRAWN, "-m", args.model, "--device", "cpu", "--dtype", DTYPE, "--quiet", *source)
        for method in dict.fromkeys([*READ, *(name for stage in args.stages for name in SELECTING.get(stage, ()))]):
            if method not in known:
                cost = (of_technique if method in READ else of_choice)(method, common)
                with open(args.out, "a") as out:
                    out.write(json.dumps(cost) + "\n")
                print(cost, flush=True)


if __name__ == "__main__":
    main()
