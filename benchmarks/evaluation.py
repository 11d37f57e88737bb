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

# Counts the seconds inside the network's passes, vocabulary projection included, while one command runs.
TIMED = """
import json, resource, sys, time
from deepthink_cli.model import LanguageModel
from deepthink_cli.cli.main import run
spent = 0.0
def timed(function):
    def inner(*arguments, **named):
        global spent
        started = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent += time.perf_counter() - started
    return inner
LanguageModel.run, LanguageModel.log_probabilities = timed(LanguageModel.run), timed(LanguageModel.log_probabilities)
started = time.perf_counter()
code = run(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"code": code, "wall": time.perf_counter() - started, "passes": spent, "peak": peak}), file=sys.stderr)
"""


def measured(arguments: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """What the command printed, and its times and peak memory."""
    done = subprocess.run([sys.executable, "-c", TIMED, *arguments], capture_output=True, text=True, check=False)
    cost = json.loads(done.stderr.splitlines()[-1])
    if cost["code"]:
        sys.exit(done.stderr)
    return json.loads(done.stdout), cost


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
            "| rows | wall s | evaluating s | in passes s | share of evaluating | share of wall | inputs x iterations /s | peak MiB |"
        )
        print("|--:|--:|--:|--:|--:|--:|--:|--:|")
        for rows in args.rows:
            found, cost = measured(["eval", memory, *task, "--limit", str(rows), "--json"])
            scored = found["n"] * len(found["results"])  # type: ignore[arg-type]
            print(
                f"| {found['n']:,} | {cost['wall']:.1f} | {found['seconds']:.1f} | {cost['passes']:.1f} | {cost['passes'] / found['seconds']:.0%} "
                f"| {cost['passes'] / cost['wall']:.0%} | {scored / found['seconds']:.0f} | {cost['peak'] / 2**20:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
