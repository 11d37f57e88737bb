"""What `deepthink tune` keeps where its rows are too few to choose with: plain in-context learning or a correction.

    python benchmarks/few_rows.py --model MODEL --data-dir DIR -o FILE
    python benchmarks/few_rows.py -o FILE --table

Draws labelled rows of five tasks, as many of each label as possible, scores each after a memory without its fold, as
`tune` does, and evaluates the memory of all on test rows that are drawn with them, raw and corrected. FILE has a line
for each draw, and a second run continues. The table applies `tune`'s rule to the held-out labels of the lines.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.evaluation.evaluate import evaluate
from deepthink_cli.events import silent
from deepthink_cli.io.atomic import append
from deepthink_cli.method import Method
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.evaluated import EvaluatedRows
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import evaluation_set, training_rows
from deepthink_cli.thinking import think
from deepthink_cli.tuning.held_out import held_out_scores, training_set
from deepthink_cli.tuning.options import TuneOptions
from deepthink_cli.tuning.plan import LabelledRows, TunePlan, plan_tuning

TASKS = ("sst2", "sst5", "trec", "mr", "agnews")
COUNTS = (12, 16, 24)
CORRECTIONS = ("contextual", "domain", "batch")


class Pools:
    """The training rows and the test rows of every task."""

    def __init__(self, data_dir: Path) -> None:
        self.source, self.read = Source(data_dir), dict[str, tuple[list[Query], list[Query]]]()

    def __call__(self, name: str) -> tuple[list[Query], list[Query]]:
        if name not in self.read:
            task = find_task(name)
            evaluated = evaluation_set(task, "official", self.source)
            self.read[name] = (training_rows(task, task.demonstrations, evaluated)[0], list(evaluated))
        return self.read[name]


def balanced(rows: list[Query], labels: tuple[str, ...], count: int, draw: random.Random) -> list[Query]:
    """So many rows, as many of each label as possible; which labels have one more is drawn."""
    shuffled, order = draw.sample(rows, len(rows)), draw.sample(labels, len(labels))
    of_label = {label: [row for row in shuffled if row.gold == label] for label in labels}
    return [of_label[order[place % len(order)]][place // len(order)] for place in range(count)]


def measured(engine: Engine, plan: TunePlan, test: list[Query]) -> dict[str, Any]:
    """The held-out labels of all rows, and the accuracy of the memory of all on the test rows."""
    sets = [training_set(plan, (fold,), 0, engine, None) for fold in range(len(plan.folds))]
    scores = held_out_scores(engine, plan.rows, sets, plan.grid, silent).scores
    places = {
        row: int(label)
        for of, found in zip(sets, scores, strict=True)
        for row, label in zip(of.rows, found[NONE][0, 0, 0].argmax(axis=-1), strict=True)
    }
    demonstrations = training_set(plan, (), 0, engine, None).demonstrations[0]
    memories = list(think(engine, demonstrations, Method(1)))
    rows = EvaluatedRows(test, len(test), "test", demonstrations)
    found = evaluate(memories, rows, calibrate=CORRECTIONS, engine=engine).evaluation
    by_correction = {NONE: found.last, **{name: found.calibrated[name].last for name in CORRECTIONS}}
    return {
        "answers": [places[row] for row in range(len(plan.rows))],
        "gold": plan.rows.gold,
        "test": len(test),
        "accuracy": {name: each.accuracy for name, each in by_correction.items()},
        "largest": {name: max(each.predicted.values()) for name, each in by_correction.items()},
    }


def lines(args: argparse.Namespace, known: set[tuple[str, int, int]]) -> Iterator[dict[str, Any]]:
    """The draws that are not known yet, all tasks with every draw in turn."""
    model = ModelOptions.checked(model=args.model, device="cpu", dtype="float32")
    engine, pools = load(find_model(model, silent), silent), Pools(args.data_dir)
    options = TuneOptions.checked(iterations=1, techniques="deep-thinking", calibrate=NONE)
    for draw in range(args.draws):
        for count in COUNTS:
            for name in TASKS:
                if (name, count, draw) in known:
                    continue
                task, (training, test) = find_task(name), pools(name)
                labels, drawing = tuple(task.labels or ()), random.Random(f"{name} {count} {draw}")
                drawn = balanced(training, labels, count, drawing)
                rows = LabelledRows(PoolRows.of(name, drawn, task.prompt, labels))
                fresh = drawing.sample(test, args.test_rows)
                yield {
                    "task": name,
                    "rows": count,
                    "draw": draw,
                    **measured(engine, plan_tuning(rows, model, options), fresh),
                }


def main() -> None:
    """Measure the draws that are missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--test-rows", type=int, default=60)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    found = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    for line in lines(args, {(each["task"], each["rows"], each["draw"]) for each in found}):
        append(args.out, [json.dumps(line) + "\n"])
        print(line, flush=True)


if __name__ == "__main__":
    main()
