"""Classifiers outside, trained on the labels that the methods see: rows for docs/table1.md, appended one by one.

    python -m research.table1.rivals --model MODEL --data-dir DIR -o research/tables/table1/NAME/rivals.jsonl

The test rows, demonstrations and dev rows are those of the table. A classifier is trained on the random demonstrations,
which every method with random demonstrations reads, and on these with the dev rows, which choose T. Rows that are in
the file, or in the table of its folder, are skipped. `correct` says which test rows are labelled correctly, as in the
results of a run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.events import silent
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Job, pending, planned
from deepthink_cli.experiments.prepare import prepare_run
from deepthink_cli.experiments.results import bits
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.selection.store import Store
from deepthink_cli.tuning.rivals import labelled, states, words
from research.packing import continued
from research.table1.runs import BASELINE, DEV_ROWS, DTYPE, ROWS, SEEDS, TASKS

CLASSIFIERS = {"TF-IDF": words, "mean hidden states": states}
SEEN = {"demonstrations": False, "demonstrations and dev rows": True}  # with the dev rows?
KEY = ("task", "seed", "classifier", "trained_on")


def jobs_of(spec: ModelSpec, engine: Engine, task: str, data_dir: Path | None) -> list[Job]:
    """The jobs of a task of the table, one with its random demonstrations for each seed."""
    options = Experiment.checked(
        tasks=(task,),
        seeds=tuple(SEEDS),
        demos_by=(BASELINE,),
        limit=int(ROWS),
        choose_on=f"dev:{DEV_ROWS}",
        data_dir=None if data_dir is None else str(data_dir),
    )
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_run(planned(options, spec), Path(folder))
    return [job for each in pending(prepared) for job in each.jobs(engine, None)]


def measure(engine: Engine, job: Job, store: Store) -> Iterator[dict[str, Any]]:
    """Train every classifier on each of the labelled rows, and label the test rows."""
    labels = job.demonstrations.labels
    read = [Query(each.text, labels, each.label) for each in job.demonstrations.examples]
    dev, test = list(job.queries("dev")), list(job.queries("test"))
    rows = [*test, *read, *dev]
    gold = [labels.index(str(row.gold)) for row in rows]
    for name, features in CLASSIFIERS.items():
        started = time.process_time()
        untrained, inputs = features(engine, job.demonstrations.template, rows, store)
        reading = time.process_time() - started
        for seen, with_dev in SEEN.items():
            started, end = time.process_time(), len(rows) if with_dev else len(test) + len(read)
            found = labelled(untrained, inputs[:end], gold[:end], range(len(test), end))
            right = [label == true for label, true in zip(found, gold, strict=False)][: len(test)]
            yield {
                **dict(zip(KEY, (job.task.name, job.seed, name, seen), strict=True)),
                "labels": end - len(test),
                "n": len(test),
                "right": sum(right),
                "correct": bits(right),
                "demonstrations_sha256": job.sha256,
                "rows_sha256": dict(job.rows_sha256),
                "dtype": DTYPE,
                "process_seconds": round(reading + time.process_time() - started, 2),
            }


def main() -> None:
    """Measure what is missing, task by task, and append a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    with continued([args.out.parent]), tempfile.TemporaryDirectory() as cache:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.touch()
        known = [json.loads(line) for line in args.out.read_text().splitlines()]
        done = {tuple(row[name] for name in KEY) for row in known}
        spec = find_model(ModelOptions.checked(model=args.model, device="cpu", dtype=DTYPE), silent)
        engine, store = load(spec, silent), Store(Path(cache))
        for task in TASKS:
            if all((task, seed, *each) in done for seed in SEEDS for each in _pairs()):
                continue
            for job in jobs_of(spec, engine, task, args.data_dir):
                for row in measure(engine, job, store):
                    if tuple(row[name] for name in KEY) not in done:
                        with open(args.out, "a") as out:
                            out.write(json.dumps(row) + "\n")
                        print(row, flush=True)


def _pairs() -> Iterator[tuple[str, str]]:
    return ((name, seen) for name in CLASSIFIERS for seen in SEEN)


if __name__ == "__main__":
    main()
