"""What it costs to correct a stream of a million rows by a bias of rows, as `predict` does: seconds and peak memory.

    python benchmarks/corrections.py

The scores are random numbers and no model runs. Each correction has a process of its own, because of its peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deepthink_cli import Query
from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.scoring.pipeline import CHUNK
from deepthink_cli.scoring.prediction import Prediction, Scores, prediction_of
from record import Table, parser
from timed import peak_bytes, reset_peak

COLUMNS = ("calibration", "labels", "rows", "first half", "second half", "peak, MiB")
NOTE = f"Processor seconds of correcting chunks of {CHUNK} rows, and how much the memory of the process grew meanwhile."


def chunks(rows: int, labels: tuple[str, ...]) -> Iterator[list[Prediction]]:
    """Predictions by random scores, in chunks."""
    draw, means = np.random.default_rng(0), np.arange(len(labels))
    for start in range(0, rows, CHUNK):
        scores = draw.normal(means, 5, size=(min(CHUNK, rows - start), len(labels))).tolist()
        yield [prediction_of(Query("", labels), 1, Scores(tuple(each), tuple(each))) for each in scores]


def corrected(name: str, rows: int, count: int) -> dict[str, float]:
    """Correct the rows, and return seconds and growth of the peak; what runs in the process that is measured."""
    labels = tuple(f"label {number}" for number in range(count))
    calibrator, seconds, done = Calibrator([name], labels), [0.0, 0.0], 0
    reset_peak()
    before = peak_bytes()
    for chunk in chunks(rows, labels):
        started = time.process_time()
        calibrator(chunk)
        seconds[2 * done >= rows] += time.process_time() - started
        done += len(chunk)
    return {"first": seconds[0], "second": seconds[1], "peak": peak_bytes() - before}


def main() -> None:
    """Measure, and show a row as soon as it is known."""
    options = parser(__doc__)
    options.add_argument("--calibrate", nargs="+", default=["batch", "prior"])
    options.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    options.add_argument("--labels", type=int, nargs="+", default=[2])
    options.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        name, rows, labels = args.one
        print(json.dumps(corrected(name, int(rows), int(labels))))
        return
    table = Table(args, "Corrections of a stream", COLUMNS, note=NOTE)
    for name, labels, rows in ((name, c, size) for name in args.calibrate for c in args.labels for size in args.sizes):
        command = [sys.executable, str(Path(__file__).resolve()), "--one", name, str(rows), str(labels)]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        table.add(name, labels, rows, found["first"], found["second"], found["peak"] / 2**20)


if __name__ == "__main__":
    main()
