"""How much faster reading and scoring in float32 are with products by oneDNN than with torch's usual ones.

    python benchmarks/products.py

Both run on the same model, which is loaded twice, and take turns: a reading of L tokens after a history of as many, and
a set of inputs scored after it. On processors for which `deepthink` does not use oneDNN, this is
what it would give.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

import torch
from transformers.utils import logging

from deepthink_cli.engine import products
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.products import reorder_weights
from real_model import REAL
from record import Table, parser
from shapes import Words, build_engine, memory_ids, workload
from trec import words_of

INPUTS, CANDIDATE_TOKENS = 64, 1
COLUMNS = ("model", "L", "reading", "reading by oneDNN", "input", "input by oneDNN", "difference")
RATIOS = ("reading / reading by oneDNN", "input / input by oneDNN")
NOTE = (
    "Median milliseconds of a second reading of L tokens, and of each of 64 inputs scored after it, with torch's usual "
    "products and with oneDNN's, in float32; the difference is the largest of a score, in nats."
)


def milliseconds(run: Callable[[], object]) -> float:
    """The time of one call."""
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


def row(usual: BatchedEngine, fast: BatchedEngine, words: Words, length: int, rounds: int) -> list[float]:
    """The figures of one memory length."""
    ids = tuple(memory_ids(words, length))
    (memory,) = usual.read([Reading(ids)])
    again = Reading(ids, memory, length)
    engines = {"usual": usual, "fast": fast}
    times: dict[tuple[str, str], list[float]] = {(name, what): [] for what in ("read", "score") for name in engines}
    plan = usual.plan(workload(words, INPUTS, CANDIDATE_TOKENS))
    for _ in range(rounds + 1):  # the first round warms up
        for name, engine in engines.items():
            times[name, "read"].append(milliseconds(partial(engine.read, [again])))
            times[name, "score"].append(milliseconds(partial(engine.score, [memory], plan)) / INPUTS)
    scores = [torch.tensor(engine.score([memory], plan), dtype=torch.float64) for engine in engines.values()]
    medians = [median(of_rounds[1:]) for of_rounds in times.values()]
    return [*medians, float((scores[0] - scores[1]).abs().max())]


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--shapes", nargs="+", default=["gpt2", "pythia-160m", REAL], help="as in speed.py")
    args = options.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    table = Table(args, "Products by oneDNN", COLUMNS, RATIOS, NOTE)
    for shape in args.shapes:
        with patch.object(products, "usual_products_are_slow", return_value=False):
            usual, fast = build_engine(shape), build_engine(shape)
        reorder_weights(fast.model.network.base_model, most=2**62)
        words = words_of(shape, usual.model)
        for length in args.lengths:
            table.add(Path(shape).name, length, *row(usual, fast, words, length, args.rounds))


if __name__ == "__main__":
    main()
