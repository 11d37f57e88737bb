"""How far scores in bfloat16 are from those in float32, and how much faster they are.

    python benchmarks/half_precision.py --data-dir DIR

The same demonstrations are read, and the same test rows scored, by the model in both dtypes, which take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from transformers.utils import logging

from deepthink_cli import Engine, Method, load_model, score, think
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery, tokenize_demonstrations, tokenize_queries
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set
from deepthink_cli.updates import Gate
from real_model import REAL
from record import Table, parser
from shapes import weights_of

SHOTS = {"trec": 36, "sst2": 16}
ETA, SEED = 0.1, 0
COLUMNS = ("task", "L", "rows", "T", "mean difference", "largest", "labels changed", "float32", "bfloat16")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def main() -> None:
    """Measure every task and iteration, and print the table."""
    args = _arguments()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    engines = [load_model(weights_of(args.model) or args.model, dtype=dtype) for dtype in ("float32", "bfloat16")]
    note = (
        "Differences of the log-probabilities of all candidates in nats, the rows whose best candidate changes, and "
        f"the median seconds of scoring all rows ({args.clock} clock); {Path(args.model).name}, eta {ETA}, seed {SEED}."
    )
    table = Table(args, "bfloat16 beside float32", COLUMNS, ("float32 / bfloat16",), note)
    for name in args.tasks:
        demonstrations, queries = _tokens(name, engines[0], args.data_dir, args.rows)
        memories = [
            dict(enumerate(think(engine, demonstrations, Method(max(args.iterations), Gate(ETA))), 1))
            for engine in engines
        ]
        for iteration in args.iterations:
            pair = [(engine, kept[iteration]) for engine, kept in zip(engines, memories, strict=True)]
            compared = _compared(pair, queries, args.rounds, CLOCKS[args.clock])
            table.add(name, len(demonstrations.token_ids), len(queries), iteration, *compared)


def _tokens(
    name: str, engine: Engine, data_dir: str, rows: int
) -> tuple[TokenizedDemonstrations, list[TokenizedQuery]]:
    """A task's demonstrations of one seed and its first sampled test rows."""
    task = find_task(name)
    evaluated = evaluation_set(task, "paper", Source(Path(data_dir)), rows)
    drawn = draw_demonstrations(task, evaluated, SHOTS[name], SEED).demonstrations
    queries = tokenize_queries(engine.tokenizer, drawn.template, list(evaluated))
    return tokenize_demonstrations(engine.tokenizer, drawn), list(queries)


def _compared(
    pair: list[tuple[Engine, Memory]], queries: list[TokenizedQuery], rounds: int, clock: Callable[[], float]
) -> tuple[float, float, int, float, float]:
    """The last five figures of a row."""
    seconds: list[list[float]] = [[], []]
    sums: list[list[list[float]]] = [[], []]
    for _ in range(rounds):
        for number, (engine, memory) in enumerate(pair):
            started = clock()
            sums[number] = [list(scores.sums) for scores in score(engine, memory, queries)]
            seconds[number].append(clock() - started)
    differences = [
        abs(one - other) for both in zip(*sums, strict=True) for one, other in zip(*both, strict=True)
    ]  # candidates of all rows
    changed = sum(one.index(max(one)) != other.index(max(other)) for one, other in zip(*sums, strict=True))
    return sum(differences) / len(differences), max(differences), changed, median(seconds[0]), median(seconds[1])


def _arguments() -> argparse.Namespace:
    options = parser(__doc__)
    add = options.add_argument
    add("--data-dir", metavar="DIR", required=True, help="folder with trec/ and sst2/")
    add("--model", default=REAL, help="a folder, or a name that benchmarks/speed.py knows")
    add("--tasks", nargs="+", choices=SHOTS, default=list(SHOTS))
    add("--rows", type=int, default=300)
    add("--iterations", type=int, nargs="+", default=[1, 3], help="T; eta is 0.1")
    add("--rounds", type=int, default=3, help="of scoring all rows; 1 is enough for differences alone")
    add("--clock", choices=CLOCKS, default="wall", help="cpu: seconds of all threads, on a machine that others use")
    add("--threads", type=int, default=2)
    return options.parse_args()


if __name__ == "__main__":
    main()
