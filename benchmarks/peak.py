"""Peak memory of scoring: with the model loaded, after scoring without a memory, and after scoring with one.

    python benchmarks/peak.py --shapes gpt2 --lengths 512

Every measurement is a separate process. Its peak is counted after the model is loaded, so that it does not include
loading; the memory is random, so that it does not include reading. Prints a Markdown table; the last column is the
number of copies of the memory that scoring makes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from timed import peak_bytes, reset_peak

STAGES = ("loaded", "no memory", "memory")


def measure_peak(shape: str, length: int, inputs: int, dtype: str, threads: int) -> dict[str, Any]:
    """The three peaks of a shape in bytes, the sizes of its weights and memory, and their ratio."""
    found: dict[str, Any] = {"shape": shape, "length": length, "inputs": inputs, "dtype": dtype, "threads": threads}
    given = [shape, str(length), str(inputs), dtype, str(threads)]
    for stage in STAGES:
        command = [sys.executable, str(Path(__file__).resolve()), "--one", stage, *given]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        measured = json.loads(done.stdout)
        found[stage] = measured.pop("peak")
        found |= measured
    found["ratio"] = (found["memory"] - found["no memory"]) / found["memory_bytes"]
    return found


def run_stage(stage: str, shape: str, length: int, inputs: int, dtype: str, threads: int) -> dict[str, int]:
    """Build, and score where the stage says so: what runs in the process that is measured."""
    import torch
    from transformers.utils import logging

    from deepthink_cli import score
    from deepthink_cli.engine.packed import PackedEngine
    from shapes import build_engine, random_memory, workload
    from trec import words_of

    logging.set_verbosity_error()
    torch.set_num_threads(threads)
    engine = build_engine(shape, getattr(torch, dtype))
    words = words_of(shape, engine.model)
    for parameter in engine.model.network.parameters():
        parameter.sum()  # weights from a file are memory-mapped, and resident only once read
    reset_peak()
    weights = sum(parameter.nbytes for parameter in engine.model.network.parameters())
    if stage == "loaded":
        return {"peak": peak_bytes(), "weights_bytes": weights}
    memory = random_memory(engine, length if stage == "memory" else 0)
    score(engine, memory, workload(words, inputs, 2))
    packed = isinstance(engine, PackedEngine)
    return {"peak": peak_bytes(), "weights_bytes": weights, "memory_bytes": memory.nbytes, "packed": packed}


def peak_table(rows: list[dict[str, Any]]) -> str:
    """The measurements as Markdown."""
    lines = [
        "| shape | L | engine | weights MiB | memory MiB | loaded | scored without memory | scored with memory | with "
        "- without, in memories |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        sizes = [row[name] / 2**20 for name in ("weights_bytes", "memory_bytes", *STAGES)]
        shown = " | ".join(f"{size:,.0f}" for size in sizes)
        engine = "packed" if row["packed"] else "padded"
        lines.append(f"| {Path(row['shape']).name} | {row['length']:,} | {engine} | {shown} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--one"]:
        stage, shape, length, inputs, dtype, threads = sys.argv[2:]
        print(json.dumps(run_stage(stage, shape, int(length), int(inputs), dtype, int(threads))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["gpt2"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512])
    parser.add_argument("--inputs", type=int, default=64)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    rows = [
        measure_peak(shape, length, args.inputs, args.dtype, args.threads)
        for shape in args.shapes
        for length in args.lengths
    ]
    print(peak_table(rows))


if __name__ == "__main__":
    main()
