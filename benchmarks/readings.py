"""The time of a reading alone, and of each of several readings that share a pass.

    python benchmarks/readings.py

Second readings of L tokens (after a history of L), on the built-in model, on GPT-2's shape with random weights and on
the real model; a model that is not packed reads one in a pass.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from transformers.utils import logging

from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.model.options import POCKET
from real_model import REAL
from record import Table, parser
from shapes import Words, build_engine, memory_ids
from trec import words_of

TOGETHER = (1, 2, 4)
COLUMNS = ("model", "engine", "L", *(f"{count} in a pass" for count in TOGETHER), "share one by default")
NOTE = "Milliseconds of one second reading of L tokens, by how many share its pass, in float32; the best of the rounds."


def milliseconds(engine: BatchedEngine, words: Words, length: int, rounds: int) -> dict[int, float]:
    """The best time of a reading, by how many share its pass; the numbers take turns."""
    ids = tuple(memory_ids(words, length))
    (history,) = engine.read([Reading(ids)])
    best = dict.fromkeys(TOGETHER if isinstance(engine, PackedEngine) else (1,), float("inf"))
    for _ in range(rounds + 1):  # the first round warms up
        for count in best:
            started = time.perf_counter()
            engine.read_pass([Reading(ids, history, length)] * count)
            best[count] = min(best[count], (time.perf_counter() - started) / count * 1e3)
    return best


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128, 256, 500])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--shapes", nargs="+", default=[POCKET, "gpt2", REAL], help="as in speed.py, and pocket")
    args = options.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    table = Table(args, "Readings that share a pass", COLUMNS, note=NOTE)
    for shape in args.shapes:
        engine = build_engine(shape)
        words = words_of(shape, engine.model)
        for length in args.lengths:
            found = milliseconds(engine, words, length, args.rounds)
            share = max(1, engine.batch_tokens // length) if isinstance(engine, PackedEngine) else 1
            table.add(Path(shape).name, engine.name, length, *map(found.get, TOGETHER), share)


if __name__ == "__main__":
    main()
