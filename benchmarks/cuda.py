"""A GPU against one processor: the same scores, and how long thinking and scoring take on each.

    python -m benchmarks.cuda --model MODEL --data-dir DIR [--rows 500] [--device cuda]

Reads 8 demonstrations of every task once on the processor in float32, and on the device in float32 and bfloat16, with
both engines; prints the largest difference of a score in nats and the labels that differ.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from deepthink_cli import Gate, Method, load_model, predict, think, tokenize_demonstrations
from deepthink_cli.engine.base import Engine
from deepthink_cli.prediction import Prediction
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

METHOD = Method(5, Gate(0.1), "restarted")


@dataclass(frozen=True)
class Measured:
    """The predictions of T = 1 and T = 5, one after the other, and the seconds of both stages."""

    predictions: Sequence[Prediction]
    thinking: float
    scoring: float


def measure(engine: Engine, task_name: str, data_dir: Path, rows: int) -> Measured:
    """Think and score once; the first call of an engine also warms it up."""
    task = find_task(task_name)
    evaluated = evaluation_set(task, "official", Source(data_dir), rows)
    drawn = draw_demonstrations(task, evaluated, 8, 0).demonstrations
    demonstrations = tokenize_demonstrations(engine.tokenizer, drawn)
    started = _now()
    memories = list(think(engine, demonstrations, METHOD))
    read = _now()
    texts = [query.text for query in evaluated]
    predictions = [each for memory in (memories[0], memories[-1]) for each in predict(engine, memory, texts)]
    return Measured(predictions, read - started, _now() - read)


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def compare(reference: Sequence[Prediction], other: Sequence[Prediction]) -> dict[str, float]:
    """The largest difference of a score in nats, and the labels that differ."""
    largest, different = 0.0, 0
    for left, right in zip(reference, other, strict=True):
        largest = max(largest, *(abs(left.scores[label] - right.scores[label]) for label in left.scores))
        different += left.label != right.label
    return {"largest_nats": largest, "labels_differ": different, "of": len(reference)}


def main() -> None:
    """Print one line of JSON for every task and engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=["sst2", "trec"])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    on_cpu = load_model(args.model, device="cpu", dtype="float32")
    references = {task: measure(on_cpu, task, args.data_dir, args.rows) for task in args.tasks}
    for dtype in ("float32", "bfloat16"):
        for name in ("packed", "padded"):
            engine = load_model(args.model, device=args.device, dtype=dtype, engine=name)
            measure(engine, args.tasks[0], args.data_dir, 50)
            for task in args.tasks:
                measured = measure(engine, task, args.data_dir, args.rows)
                line = {"task": task, "device": args.device, "dtype": dtype, "engine": name}
                line |= compare(references[task].predictions, measured.predictions)
                for stage in ("thinking", "scoring"):
                    line[f"{stage}_seconds"] = round(getattr(measured, stage), 3)
                    line[f"{stage}_seconds_cpu"] = round(getattr(references[task], stage), 3)
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
