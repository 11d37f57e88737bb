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

from record import Table, parser
from timed import peak_bytes, reset_peak

STAGES = ("loaded", "no memory", "memory")
COLUMNS = ("shape", "L", "engine", "weights", "its memory", "loaded", "scored without", "scored with", "copies")


def measure_peak(shape: str, length: int, inputs: int, dtype: str, threads: int) -> dict[str, Any]:
    """The three peaks of a shape in bytes, the sizes of its weights and memory, and their ratio."""
    found: dict[str, Any] = {}
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


def add_peaks(args: argparse.Namespace, lengths: dict[str, list[int]], part: str = "") -> None:
    """A table of the peaks of every shape after memories of its lengths."""
    note = (
        f"MiB in a fresh process each, counted after the model is loaded, when {args.inputs} inputs are scored in "
        f"{args.dtype}. The copies are what a memory adds to the peak, in memories."
    )
    table = Table(args, "Peak memory", COLUMNS, note=note, part=part)
    for shape, length in ((shape, length) for shape, given in lengths.items() for length in given):
        found = measure_peak(shape, length, args.inputs, args.dtype, args.threads)
        sizes = [found[name] / 2**20 for name in ("weights_bytes", "memory_bytes", *STAGES)]
        engine = "packed" if found["packed"] else "padded"
        table.add(Path(shape).name, length, engine, *sizes, found["ratio"])


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--one"]:
        stage, shape, length, inputs, dtype, threads = sys.argv[2:]
        print(json.dumps(run_stage(stage, shape, int(length), int(inputs), dtype, int(threads))))
        return
    options = parser(__doc__)
    options.add_argument("--shapes", nargs="+", default=["gpt2"])
    options.add_argument("--lengths", type=int, nargs="+", default=[512])
    options.add_argument("--inputs", type=int, default=64)
    options.add_argument("--dtype", default="float32")
    options.add_argument("--threads", type=int, default=2)
    args = options.parse_args()
    add_peaks(args, dict.fromkeys(args.shapes, args.lengths))


if __name__ == "__main__":
    main()
