"""Where `deepthink eval --task agnews` spends its time, and whether its memory grows with the rows.

    python benchmarks/evaluation.py --data-dir DIR

Runs the command on the built-in model in processes of their own, with a share of the rows and with all of
them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from record import Table, parser
from timed import measured

COLUMNS = ("rows", "wall", "evaluating", "in passes", "inputs x iterations a second", "peak")


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--data-dir", required=True, help="directory with ag_news/train.jsonl and ag_news/test.jsonl")
    options.add_argument("--rows", type=int, nargs="+", default=[760, 7600])
    args = options.parse_args()
    task = ["--task", "agnews", "--data-dir", args.data_dir, "--protocol", "paper"]
    with tempfile.TemporaryDirectory() as name:
        memory = str(Path(name) / "mem.safetensors")
        subprocess.run(
            [sys.executable, "-m", "deepthink_cli", "think", *task, "-T", "5", "-q", "-o", memory], check=True
        )
        note = "Seconds, all rows scored at every T, in the model's passes and in all; the peak memory is in MiB."
        table = Table(args, "eval on AG News", COLUMNS, ("in passes / evaluating", "in passes / wall"), note)
        for rows in args.rows:
            printed, cost = measured(["eval", memory, *task, "--limit", str(rows), "--json"])
            found = json.loads(printed)
            scored = found["n"] * len(found["results"])
            seconds = found["seconds"]
            table.add(found["n"], cost.wall, seconds, cost.passes, scored / seconds, cost.peak / 2**20)


if __name__ == "__main__":
    main()
