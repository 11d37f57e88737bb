"""The runs behind docs/evidence.md and docs/table1.md, seed after seed; prints or executes them.

    python -m research.evidence.runs --model MODEL --data-dir DIR -o research/tables/evidence [--print]

For each task and seed all runs have the same test rows, dev rows, and pool of training rows, and all that choose no
demonstrations read the same random ones. Every command can be interrupted and repeated: `deepthink run` skips the rows
that exist. Results continue from the tables in the folder, such as `thinking.parquet`, and are packed again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from research.jobs import Job, parser_of, run_jobs

TASKS = ("sst2", "sst5", "mr", "agnews", "trec")
SEEDS = range(5)
ROWS, DEV_ROWS = 300, 150
DTYPE = "float32"
ETA, LARGE, SMALL = "0.01", "0.1", "0.001,0.003"
AT = "1,2,5,12"  # T of the paper's setting; `restarted` has no row of T = 1, which is the same one
RANDOM = ("--demos-by", "random")
BY_DEV = "random-valid"  # the choice by labels of other rows
CHOICES = ("k-center", "global-entropy", "local-entropy", "graph-cut", "gradmatch")
HEADS = "heads"  # the folder of what research/heads.py makes of the hidden states of T = 1
STAGES = {
    "thinking": (*RANDOM, "--eta", ETA, "-T", "12", "--at", AT),
    "restarted": (*RANDOM, "--positions", "restarted", "--eta", f"{ETA},{LARGE}", "-T", "12", "--at", "2,5,12"),
    "large": (*RANDOM, "--eta", LARGE, "-T", "12", "--at", "12"),
    "techniques": (*RANDOM, "--technique", "composed,ensemble-4", "-T", "1"),
    "valid": ("--demos-by", BY_DEV, "--eta", ETA, "-T", "5", "--at", "1,5"),
    "ct-kv": (*RANDOM, "--technique", "ct-kv", "-T", "1"),
    "choices": ("--demos-by", ",".join(CHOICES), "-T", "1"),
    "small": (*RANDOM, "--eta", SMALL, "-T", "50", "--at", "30,50"),
}
LATER = ("choices", "ct-kv", "small")  # an hour or more for each seed
FIRST = tuple(name for name in STAGES if name not in LATER)


def all_jobs(seeds: Sequence[int] = SEEDS) -> Iterator[Job]:
    """Every command of these seeds, the cheap stages of every seed first."""
    for stages in (FIRST, LATER):
        for seed, stage, task in product(seeds, stages, TASKS):
            rows = ("--task", task, "--seeds", f"{seed},", "--limit", str(ROWS), "--choose-on", f"dev:{DEV_ROWS}")
            yield Job(stage, stage, (*rows, *STAGES[stage]))


def main() -> None:
    """Print the commands, or execute them."""
    parser = parser_of(__doc__ or "", list(STAGES), "evidence_job")
    parser.add_argument("--seeds", type=int, nargs="+", choices=SEEDS, default=SEEDS, help="only these; default: all")
    args = parser.parse_args()
    jobs = [job for job in all_jobs(args.seeds) if job.stage in args.stages]
    run_jobs(args, jobs, DTYPE, [args.out / name for name in STAGES])


if __name__ == "__main__":
    main()
