"""One file labelled by one process and by workers (`deepthink predict --workers`), in turns, on the real model.

    python benchmarks/workers.py --data-dir DIR [--rows 512] [--workers 2] [--runs 3]

Both use the threads that OMP_NUM_THREADS says; without it, one process uses all cores and each worker its share.
The seconds are those of whole processes, which load the model.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from predicting import first_rows
from real_model import real_model
from record import Table, parser


def seconds(*words: str) -> float:
    """The seconds of one command, which must succeed."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "deepthink_cli", *words, "-q"], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Think once, label the rows in turns, and print the table."""
    options = parser(__doc__)
    options.add_argument("--data-dir", required=True)
    options.add_argument("--rows", type=int, default=512)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--runs", type=int, default=3)
    given = options.parse_args()
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
    threads = os.environ.get("OMP_NUM_THREADS", "all, or its share for each worker")
    note = f"Seconds of whole processes that label {given.rows} rows of AG News in float32; threads: {threads}."
    table = Table(given, "Workers on a processor", ("", "median", "lowest", "highest", "bytes"), note=note)
    for kind, each in spent.items():
        table.add(kind, median(each), min(each), max(each), "equal" if one == several else "different")


if __name__ == "__main__":
    main()
