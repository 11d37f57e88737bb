"""What hidden states of several layers add to a pass that scores: the cost of a memory with a head.

    python benchmarks/hidden_states.py examples/reviews/demos.jsonl examples/reviews/sentences.jsonl --model MODEL

Both are measured in turn, in one process. Prints the medians in milliseconds a row, and the median of the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from deepthink_cli import Gate, Method, Query, load_model, read_demonstrations, think, tokenize_demonstrations
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.scoring.heads import observed_layers


def seconds(work: Callable[[], object]) -> float:
    """How long the work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demos", type=Path)
    parser.add_argument("rows", type=Path, help="JSON Lines with the first text field of the demonstrations")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    engine = load_model(args.model, device="cpu", dtype="float32")
    given = read_demonstrations(args.demos)
    demonstrations = tokenize_demonstrations(engine.tokenizer, given)
    (name,) = given.template.text_fields
    texts = [json.loads(line)[name] for line in args.rows.read_text(encoding="utf-8").splitlines()]
    queries = tokenize_queries(engine.tokenizer, demonstrations, [Query(text, given.labels) for text in texts])
    (memory,) = think(engine, demonstrations, Method(1, Gate(0.01)))
    placed, plan, layers = engine.place(memory), engine.plan(queries), observed_layers(len(memory.keys))
    scored, observed = [], []
    for turn in range(args.turns + 1):
        pair = (
            seconds(lambda: engine.score([placed], plan)),
            seconds(lambda: engine.observe(placed, plan, layers=layers)),
        )
        if turn:  # the first turn warms up
            scored.append(pair[0])
            observed.append(pair[1])
    of_row = [1000 * statistics.median(each) / len(texts) for each in (scored, observed)]
    ratio = statistics.median(after / before for before, after in zip(scored, observed, strict=True))
    print(
        f"{len(texts)} rows, {args.model}: scores {of_row[0]:.2f} ms a row, with states of {len(layers)} layers "
        f"{of_row[1]:.2f} ms, ratio {ratio:.3f}"
    )


if __name__ == "__main__":
    main()
