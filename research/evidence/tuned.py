"""What `deepthink tune` chooses with 150 labelled rows of every task, and how it does on test rows.

    python -m research.evidence.tuned --model MODEL --data-dir DIR -o research/tables/evidence/tuned.jsonl

Runs `select` for the labelled rows, `tune` on them, and `eval` of its memory; a line for each task. Tasks that are in
the file are skipped. What `tune` tries depends on `--budget`, and so on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import processor
from deepthink_cli.tasks.catalogue import find_task
from research.packing import TABLES
from research.table1.runs import TASKS

from .runs import DEV_ROWS, ROWS

SHOTS = "8"
FILE = "tuned.jsonl"  # in the folder of the evidence


def main() -> None:
    """Tune on the tasks that are missing, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--budget", default="13m", help="of each task's tune")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("-o", "--out", type=Path, default=TABLES / "evidence" / FILE)
    args = parser.parse_args()
    known = {json.loads(line)["task"] for line in args.out.read_text().splitlines()} if args.out.exists() else set()
    for task in args.tasks:
        if task not in known:
            line = measured(task, args.model, args.data_dir, args.budget)
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


def measured(task: str, model: str, data_dir: Path | None, budget: str) -> dict[str, Any]:
    """The line of one task; `test` has the rows that the memory labels correctly, with its correction and without."""
    source = () if data_dir is None else ("--data-dir", str(data_dir.absolute()))
    on_processor = ("--dtype", "float32", "--device", "cpu", "-q")
    with tempfile.TemporaryDirectory() as folder:
        rows, memory = (str(Path(folder, name)) for name in ("rows.jsonl", "memory.safetensors"))
        drawn = ("--task", task, "--shots", DEV_ROWS, "--demos-by", "random", *source)
        _program("select", *drawn, "-q", "-o", rows)
        template = ("--template", find_task(task).template, "--shots", SHOTS)
        words = ("tune", rows, "-m", model, *template, "--budget", budget, *on_processor, "--json", "-o", memory)
        tuned = _program(*words)
        chosen = tuned["choice"]["calibration"]
        calibrations = ",".join(dict.fromkeys(("none" if chosen == "none" else "stored", "none")))
        words = ("eval", memory, "--task", task, "--limit", ROWS, "--calibrate", calibrations, *source)
        found = _program(*words, *on_processor, "--json")
    (last,) = found["results"]
    corrected = last if chosen == "none" else last["calibrated"]["stored"]
    return {
        "task": task,
        "rows": tuned["rows"],
        "budget": budget,
        "choice": tuned["choice"],
        "best": tuned["best"],
        "nested": {key: value for key, value in tuned["nested"].items() if key != "chosen"},
        "difference_beyond_noise": tuned["difference_beyond_noise"],
        "rivals": tuned["rivals"],
        "not_tried": tuned["not_tried"],
        "test": {"n": found["n"], "accuracy": corrected["accuracy"], "uncorrected": last["accuracy"]},
        "seconds": round(tuned["seconds"], 1),
        "processor": processor(),
    }


def _program(*words: str) -> dict[str, Any]:
    """What a command of the program prints as JSON; nothing if it prints nothing."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "deepthink_cli", *words]
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(printed)) if printed.strip() else {}


if __name__ == "__main__":
    main()
