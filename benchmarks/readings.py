"""What a reading costs alone, and what it costs each of several that share a pass.

    python benchmarks/readings.py

Second readings of L tokens (after a history of L), on the built-in model and on GPT-2's shape with random weights.
Prints a Markdown table: milliseconds a reading with 1, 2 and 4 in a pass, and how many share one by default.
"""

from __future__ import annotations

import argparse
import time

import torch

from deepthink_cli import load_model
from deepthink_cli.engine import engine_of, read_each
from deepthink_cli.model import LanguageModel
from deepthink_cli.reading import Reading, read_packed
from shapes import build_model, memory_ids

TOGETHER = (1, 2, 4)


def milliseconds(model: LanguageModel, length: int, rounds: int) -> dict[int, float]:
    """The best time of a reading, by how many share its pass; the numbers take turns."""
    ids = tuple(memory_ids(model.network.config.vocab_size, length))
    (history,) = read_each(model, [Reading(ids)])
    best = dict.fromkeys(TOGETHER, float("inf"))
    for _ in range(rounds + 1):  # the first round warms up
        for count in TOGETHER:
            readings = [Reading(ids, history, length)] * count
            started = time.perf_counter()
            read_packed(model, readings)
            best[count] = min(best[count], (time.perf_counter() - started) / count * 1e3)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128, 256, 500])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"| model | L | {' | '.join(f'{count} in a pass' for count in TOGETHER)} | share one by default |")
    print("|---|" + "--:|" * (len(TOGETHER) + 2))
    for name, model in (("pocket", load_model("pocket")), ("GPT-2 124M", build_model("gpt2"))):
        for length in args.lengths:
            found = milliseconds(model, length, args.rounds)
            shown = " | ".join(f"{found[count]:.1f} ms" for count in TOGETHER)
            print(f"| {name} | {length} | {shown} | {max(1, engine_of(model).batch_tokens // length)} |", flush=True)


if __name__ == "__main__":
    main()
