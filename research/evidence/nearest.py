"""The nearest mean hidden state of the dev rows, on the rows of the folder `random` and after its demonstrations.

    python -m research.evidence.nearest --model MODEL --data-dir DIR -o research/tables/evidence

`deepthink run` has no such calibration. A file of `nearest/` has the scores of the test rows of a task and seed; files
that exist are not made again, and the folder is packed at the end.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.events import silent
from deepthink_cli.experiments.prepare import SharedRows
from deepthink_cli.model.options import ModelOptions
from research.packing import continued
from research.table1.runs import MORE_ROWS, TASKS
from research.techniques import Case, Meter, centroid_arm, scores_table, write_table

from .load import DIGEST, NEAREST, nearest_path
from .runs import DEV_ROWS

SEEDS = range(10)


def write(case: Case, path: Path) -> None:
    """Write what the means of the dev rows give the test rows: columns `gold`, `candidates` and `scores`.

    `DIGEST` is that of the demonstrations, as results have it. A label of fewer than two dev rows has no
    mean, and scores of minus infinity.
    """
    job = case.job(iterations=1, at="1")
    labels, outcome = list(job.plain.labels), next(centroid_arm(case, 1))
    digests = {DIGEST: [job.sha256] * len(outcome.gold)}
    write_table(path, scores_table(labels, outcome.scores, outcome.gold, digests))


def main() -> None:
    """Write the files that are missing, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder, GGUF file or hub id")
    parser.add_argument("--data-dir", help="the tasks' rows; without it they come from the hub")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the results")
    args = parser.parse_args()
    spec = find_model(ModelOptions.checked(model=args.model, device="cpu", dtype="float32"), silent)
    engine, shared = Meter(load(spec, silent).model), SharedRows()
    common = {"limit": int(MORE_ROWS), "choose_on": f"dev:{DEV_ROWS}", "data_dir": args.data_dir}
    common |= {"demos_by": ("random",), "etas": (0.01,), "positions": ("continued",)}
    with continued([args.out / NEAREST]):
        for seed, task in product(args.seeds, args.tasks):
            path = nearest_path(args.out, task, seed)
            if not path.exists():
                write(Case(engine, spec, task, seed, common, shared), path)
                print(f"{task}, seed {seed}", flush=True)


if __name__ == "__main__":
    main()
