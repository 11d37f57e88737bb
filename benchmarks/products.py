"""How much faster reading and scoring in float32 are with products by oneDNN than with torch's usual ones.

    python benchmarks/products.py

Both run on the same model, which is loaded twice, and take turns: a reading of L tokens after a history of as many, and
a set of inputs scored after it. Prints a Markdown table with the median milliseconds of a reading and of an input, the
gains, and the largest difference of a score in nats. On processors for which `deepthink` does not use oneDNN, this is
what it would give.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

import torch
from transformers.utils import logging

from deepthink_cli.engine import budget
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.products import reorder_weights
from real_model import REAL
from shapes import Words, build_engine, memory_ids, workload
from trec import words_of

INPUTS, CANDIDATE_TOKENS = 64, 1


def milliseconds(run: Callable[[], object]) -> float:
    """The time of one call."""
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


def row(usual: BatchedEngine, fast: BatchedEngine, words: Words, length: int, rounds: int) -> str:
    """The cells of one memory length."""
    ids = tuple(memory_ids(words, length))
    (memory,) = usual.read([Reading(ids)])
    again = Reading(ids, memory, length)
    engines = {"usual": usual, "fast": fast}
    times: dict[tuple[str, str], list[float]] = {(name, what): [] for name in engines for what in ("read", "score")}
    plan = usual.plan(workload(words, INPUTS, CANDIDATE_TOKENS))
    for _ in range(rounds + 1):  # the first round warms up
        for name, engine in engines.items():
            times[name, "read"].append(milliseconds(partial(engine.read, [again])))
            times[name, "score"].append(milliseconds(partial(engine.score, [memory], plan)) / INPUTS)
    scores = [torch.tensor(engine.score([memory], plan), dtype=torch.float64) for engine in engines.values()]
    cells = []
    for what in ("read", "score"):
        slow, quick = (median(times[name, what][1:]) for name in engines)
        cells += [f"{slow:.1f}", f"{quick:.1f}", f"{slow / quick:.2f}"]
    return f"{' | '.join(cells)} | {float((scores[0] - scores[1]).abs().max()):.1e}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", default=["gpt2", "pythia-160m", REAL], help="as in speed.py")
    args = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    print("| model | L | reading, usual ms | oneDNN ms | gain | input, usual ms | oneDNN ms | gain | difference |")
    print("|---|" + "--:|" * 8)
    for shape in args.shapes:
        with patch.object(budget, "usual_products_are_slow", return_value=False):
            usual, fast = build_engine(shape), build_engine(shape)
        reorder_weights(fast.model.network.base_model, most=2**62)
        words = words_of(shape, usual.model)
        for length in args.lengths:
            print(f"| {Path(shape).name} | {length} | {row(usual, fast, words, length, args.rounds)} |", flush=True)


if __name__ == "__main__":
    main()
