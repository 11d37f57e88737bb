"""One file labelled by one process and by workers (`deepthink predict --workers`), in turns, on the real model.

    python benchmarks/workers.py --data-dir DIR [--rows 512] [--workers 2] [--runs 3]

Both use the threads that OMP_NUM_THREADS says; without it, one process uses all cores and each worker its share.
Prints a Markdown table of the seconds of whole processes, which load the model, and whether the bytes are equal.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from predicting import first_rows
from real_model import real_model


def seconds(*words: str) -> float:
    """The seconds of one command, which must succeed."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "deepthink_cli", *words, "-q"], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Think once, label the rows in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memory, inputs = str(folder / "mem.safetensors"), first_rows(given.data_dir, given.rows, folder)
        task = ["--task", "agnews", "--data-dir", given.data_dir]
        seconds("think", "-m", str(real_model()), *task, "-T", "5", "-o", memory)
        files = {"one process": folder / "one.jsonl", f"{given.workers} workers": folder / "several.jsonl"}
        spent: dict[str, list[float]] = {kind: [] for kind in files}
        for _ in range(given.runs):
            for kind, path in files.items():
                more = [] if kind == "one process" else ["--workers", str(given.workers)]
                spent[kind].append(seconds("predict", memory, inputs, "-o", str(path), *more))
        one, several = (path.read_bytes() for path in files.values())
    print("| | seconds, median | lowest | highest |\n|---|--:|--:|--:|")
    for kind, each in spent.items():
        print(f"| {kind} | {median(each):.1f} | {min(each):.1f} | {max(each):.1f} |")
    print(f"\n{given.rows} rows; the bytes are {'equal' if one == several else 'different'}")


if __name__ == "__main__":
    main()
