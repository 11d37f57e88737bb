"""Where `deepthink eval --task agnews` spends its time, and whether its memory grows with the rows.

    python benchmarks/evaluation.py --data-dir DIR

Runs the command on the built-in model in processes of their own, with a share of the rows and with all of
them; prints a Markdown table: wall time, seconds and share in the model's passes, inputs per second, peak memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from timed import measured


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="directory with ag_news/train.jsonl and ag_news/test.jsonl")
    parser.add_argument("--rows", type=int, nargs="+", default=[760, 7600])
    args = parser.parse_args()
    task = ["--task", "agnews", "--data-dir", args.data_dir, "--protocol", "paper"]
    with tempfile.TemporaryDirectory() as name:
        memory = str(Path(name) / "mem.safetensors")
        subprocess.run(
            [sys.executable, "-m", "deepthink_cli", "think", *task, "-T", "5", "-q", "-o", memory], check=True
        )
        print(
            "| rows | wall s | evaluating s | in passes s | share of evaluating | share of wall | inputs x iterations "
            "/s | peak MiB |"
        )
        print("|--:|--:|--:|--:|--:|--:|--:|--:|")
        for rows in args.rows:
            printed, cost = measured(["eval", memory, *task, "--limit", str(rows), "--json"])
            found = json.loads(printed)
            scored = found["n"] * len(found["results"])
            print(
                f"| {found['n']:,} | {cost.wall:.1f} | {found['seconds']:.1f} | {cost.passes:.1f} | "
                f"{cost.passes / found['seconds']:.0%} "
                f"| {cost.passes / cost.wall:.0%} | {scored / found['seconds']:.0f} | {cost.peak / 2**20:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
