"""One file labelled by one process and by workers (`deepthink predict --workers`), in turns, on the real model.

    python benchmarks/workers.py --data-dir DIR [--rows 512] [--workers 2] [--runs 2]

First one process uses all cores and each worker its share, then every process one thread (OMP_NUM_THREADS=1). The
seconds are those of whole processes, which load the model.
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


def seconds(*words: str, **variables: str) -> float:
    """The seconds of one command, which must succeed; OMP_NUM_THREADS is set only if `variables` has it."""
    command = [sys.executable, "-m", "deepthink_cli", *words, "-q"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | variables
    began = time.perf_counter()
    subprocess.run(command, check=True, env=environment)
    return time.perf_counter() - began


def main() -> None:
    """Think once, label the rows in turns, and print the table."""
    options = parser(__doc__)
    options.add_argument("--data-dir", required=True)
    options.add_argument("--rows", type=int, default=512)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--runs", type=int, default=2)
    given = options.parse_args()
    kinds = {"one process": [], f"{given.workers} workers": ["--workers", str(given.workers)]}
    note = (
        f"Seconds of whole processes that label {given.rows} rows of AG News in float32 with SmolLM2-135M-Instruct, "
        "the median of the runs, and whether the two files are equal."
    )
    table = Table(given, "Workers on a processor", ("threads", *kinds, "bytes"), note=note)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memory, inputs = str(folder / "mem.safetensors"), first_rows(given.data_dir, given.rows, folder)
        task = ["--task", "agnews", "--data-dir", given.data_dir]
        seconds("think", "-m", str(real_model()), *task, "-T", "5", "-o", memory)
        for threads, variables in (("all, or its share for each worker", {}), ("one", {"OMP_NUM_THREADS": "1"})):
            files = {kind: folder / f"{number}.jsonl" for number, kind in enumerate(kinds)}
            spent: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(given.runs):
                for kind, more in kinds.items():
                    spent[kind].append(seconds("predict", memory, inputs, "-o", str(files[kind]), *more, **variables))
            one, several = (path.read_bytes() for path in files.values())
            table.add(threads, *map(median, spent.values()), "equal" if one == several else "different")


if __name__ == "__main__":
    main()
