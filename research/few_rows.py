"""What `deepthink tune` keeps where its rows are too few to choose with: plain in-context learning or a correction.

    python -m research.few_rows --model MODEL --data-dir DIR -o FILE
    python -m research.few_rows -o FILE --table

Draws labelled rows of five tasks, as many of each label as possible, labels each after a memory without its fold, as
`tune` does, and evaluates the memory of all, at T = 1, on test rows that are drawn with them, raw and corrected. FILE
has a line for each draw, and a second run continues. The table applies `tune`'s rule to the held-out labels.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import torch
from transformers.utils import logging

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.evaluation.evaluate import evaluate
from deepthink_cli.evaluation.metrics import Z95
from deepthink_cli.events import silent
from deepthink_cli.io.atomic import append
from deepthink_cli.method import Method
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.rows import EvaluatedRows
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import evaluation_set, training_rows
from deepthink_cli.thinking import think
from deepthink_cli.tuning.held_out import held_out_scores, training_set
from deepthink_cli.tuning.nested import UNLABELLED, excess
from deepthink_cli.tuning.options import TuneOptions
from deepthink_cli.tuning.plan import LabelledRows, TunePlan, plan_tuning

COUNTS = (12, 16, 24)
NAMES = {"sst2": "SST-2", "sst5": "SST-5", "trec": "TREC", "mr": "MR", "agnews": "AG News"}
CORRECTIONS = (*UNLABELLED, "batch")


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
    found = evaluate(Scorer.open(memories, calibrate=CORRECTIONS), rows, engine=engine).evaluation
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
            for name in NAMES:
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


def table(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What `tune`'s rule changes, in points: by the number of rows over all tasks, and by task over these numbers."""
    yield "| rows | draws | corrected | plain | kept | difference | better | worse |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for count in COUNTS:
        yield _line(f"{count} rows", [each for each in found if each["rows"] == count])
    for task, name in NAMES.items():
        yield _line(name, [each for each in found if each["task"] == task])
    yield _line("all", found)


def _line(name: str, draws: Sequence[dict[str, Any]]) -> str:
    """One row of the table; every task counts alike, and the interval is that of the draws."""
    by_task = {task: [each for each in draws if each["task"] == task] for task in {each["task"] for each in draws}}
    gains = {task: [_accuracy(each, True) - _accuracy(each, False) for each in of] for task, of in by_task.items()}
    plain, kept = (
        fmean(fmean(_accuracy(each, ruled) for each in of) for of in by_task.values()) for ruled in (False, True)
    )
    error = math.sqrt(sum(variance(of) / len(of) for of in gains.values())) / len(gains)
    every = [gain for of in gains.values() for gain in of]
    low, high = (100 * (kept - plain + sign * Z95 * error) for sign in (-1, 1))
    cells = [len(draws), sum(map(_corrected, draws)), f"{plain:.1%}", f"{kept:.1%}"]
    cells += [f"{100 * (kept - plain):+.1f} [{low:+.1f} to {high:+.1f}]"]
    cells += [sum(gain > 0 for gain in every), sum(gain < 0 for gain in every)]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _accuracy(draw: dict[str, Any], ruled: bool) -> float:
    """Of plain in-context learning, or of what the rule keeps in its place."""
    return float(draw["accuracy"][UNLABELLED[0] if ruled and _corrected(draw) else NONE])


def _corrected(draw: dict[str, Any]) -> bool:
    return excess(draw["answers"], draw["gold"]) is not None


def main() -> None:
    """Measure the draws that are missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--test-rows", type=int, default=60)
    parser.add_argument("--table", action="store_true", help="print what the lines of FILE say, and measure nothing")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    found = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    if args.table:
        print(*table(found), sep="\n")
        return
    for line in lines(args, {(each["task"], each["rows"], each["draw"]) for each in found}):
        append(args.out, [json.dumps(line) + "\n"])
        print(line, flush=True)


if __name__ == "__main__":
    main()
