"""How often every label occurs among the demonstrations that each method of docs/table1.md chooses.

    python -m research.evidence.chosen --model MODEL --data-dir DIR

Appends a line for each method, task and seed to research/tables/chosen.jsonl; what is there is skipped. What the runs
have read of the model is in its cache.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import product

from deepthink_cli.io.atomic import append
from deepthink_cli.io.cache import Store
from research.cases import cases, rows_of
from research.packing import TABLES

from .runs import BY_DEV, CHOICES, SEEDS, TASKS

FILE = TABLES / "chosen.jsonl"
METHODS = ("random", *CHOICES, BY_DEV)


def main() -> None:
    """Write the lines that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder, GGUF file or hub id")
    parser.add_argument("--data-dir", help="the tasks' rows; without it they come from the hub")
    args = parser.parse_args()
    there = {(line["method"], line["task"], line["seed"]) for line in rows_of(FILE)}
    case_of, store = cases(args.model, args.data_dir), Store()
    for seed, task, method in product(SEEDS, TASKS, METHODS):
        if (method, task, seed) not in there:
            job = case_of(task, seed).job(store, demos_by=(method,), iterations=1, at="1")
            read = job.demonstrations
            counts = Counter(example.label for example in read.examples)
            labels = {label: counts[label] for label in read.labels}
            append(FILE, [json.dumps({"method": method, "task": task, "seed": seed, "labels": labels}) + "\n"])


if __name__ == "__main__":
    main()
