"""What `deepthink tune` says of rows whose labels are random: nothing can be learned from them.

    python -m research.random_labels

Every draw takes sentences of examples/reviews and gives each a label by a coin. Prints a Markdown table with the nested
estimate, plain in-context learning, the p-value and the verdict of each draw, its time, and how many draws were found
to differ beyond noise; by the test's level, about 1 of 40 are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import torch
from transformers.utils import logging

from deepthink_cli.data.examples import Query
from deepthink_cli.data.template import Template
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.events import silent
from deepthink_cli.model.options import POCKET, ModelOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.tuning.options import TuneOptions
from deepthink_cli.tuning.plan import FEWEST_OF_LABEL, LabelledRows, plan_tuning
from deepthink_cli.tuning.tune import TuneReport, tune

LABELS = ("negative", "positive")
SENTENCES = Path(__file__).resolve().parent.parent / "examples" / "reviews"


def sentences() -> list[str]:
    """All sentences of the examples."""
    files = (SENTENCES / name for name in ("labelled.jsonl", "sentences.jsonl"))
    return [json.loads(line)["review"] for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def drawn(texts: list[str], count: int, seed: int) -> LabelledRows:
    """Different sentences with random labels, of which each occurs at least twice."""
    draw = random.Random(seed)
    chosen, labels = draw.sample(texts, count), list[str]()
    while min(Counter(labels)[label] for label in LABELS) < FEWEST_OF_LABEL:
        labels = draw.choices(LABELS, k=count)
    queries = [Query(text, LABELS, label) for text, label in zip(chosen, labels, strict=True)]
    return LabelledRows(
        PoolRows.of(f"draw {seed}", queries, Template("Review: {review}\nSentiment: {sentiment}"), LABELS)
    )


def line(seed: int, report: TuneReport, wall: float, cpu: float) -> str:
    """One draw as a row of the table."""
    comparison = report.comparison
    verdict = "difference" if report.chosen_by_rows else "no difference"
    shares = (
        f"{comparison.baseline:.1%} | {comparison.accuracy:.1%} | {report.right[report.best] / comparison.rows:.1%}"
    )
    counts = f"{comparison.gained} | {comparison.lost} | {comparison.p:.3f}"
    return f"| {seed} | {shares} | {counts} | {verdict} | {wall:.1f} | {cpu:.1f} |"


def main() -> None:
    """Tune every draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--model", default=POCKET)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-T", "--iterations", type=int, default=15)
    parser.add_argument("--eta", default="0.01,0.03,0.1")
    parser.add_argument("--technique", help="default: those of tune")
    parser.add_argument("--calibrate", help="default: those that the rows allow")
    parser.add_argument("--folds", default="5")
    args = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    model = ModelOptions.checked(model=args.model)
    options = {"etas": args.eta, "iterations": args.iterations, "folds": args.folds}
    given = {"techniques": args.technique, "calibrate": args.calibrate}
    options |= {name: value for name, value in given.items() if value is not None}
    engine, texts, kept = load(find_model(model, silent), silent), sentences(), 0
    print("| draw | plain | nested | best | gained | lost | p | verdict | seconds | CPU seconds |")
    print("|--:|" + "--:|" * 6 + "---|--:|--:|")
    for seed in range(args.draws):
        started, before = time.perf_counter(), os.times()
        report = tune(plan_tuning(drawn(texts, args.rows, seed), model, TuneOptions.checked(**options)), engine=engine)
        used = sum(os.times()[:2]) - sum(before[:2])
        print(line(seed, report, time.perf_counter() - started, used), flush=True)
        kept += not report.chosen_by_rows
    print(f"\nno difference in {kept} of {args.draws} draws")


if __name__ == "__main__":
    main()
