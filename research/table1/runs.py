"""The runs behind docs/table1.md, the cheapest first; prints or executes them.

    python -m research.table1.runs --model MODEL --data-dir DIR -o research/tables/table1/NAME [--print]

Every command can be interrupted and repeated: `deepthink run` skips the rows that exist, and what models say of pools
is cached. Results continue from the model's table, `NAME.parquet`, and are packed again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from research.jobs import Job, parser_of, run_jobs

TASKS = ("sst2", "sst5", "mr", "agnews", "trec")
SEEDS = range(3)
POOL, ROWS, DEV_ROWS = "1000", "150", "80"  # POOL is that of `deepthink run`
MORE_ROWS = "300"  # of the methods that research/evidence/methods.py names
FITTING = ("--positions", "restarted", "-T", "8")  # the demonstrations that fit
READING = ("--eta", "0.1", *FITTING, "--at", "1,2,4,8")
COMMON = ("--limit", ROWS, "--calibrate", "none,batch", "--choose-on", f"dev:{DEV_ROWS}")
DTYPE = "float32"  # so that rows of a GPU and of a processor agree to rounding
BASELINE = "random"  # it reads nothing of the model
FEATURES = (
    *(BASELINE, "herding", "k-center", "entropy", "least-confidence", "margin", "cal", "craig", "gradmatch"),
    *("facility-location", "graph-cut", "k-means", "set-bsr"),
)
# Methods by what they cost: one pass over the pool, some thousand inputs, or tens of thousands.
SELECTING = {
    "features": FEATURES,
    **{method: (method,) for method in ("random-valid", "global-entropy", "local-entropy", "lens", "influence")},
}
# Labels of the pool that a choice sees beyond those of its demonstrations. random-valid reads 30 sets of K rows, which
# may overlap, and tries them on 100 rows; K is at most 12 (TREC).
LABELS = {
    **dict.fromkeys(("craig", "gradmatch", "facility-location", "graph-cut", "lens", "influence"), int(POOL)),
    "random-valid": 30 * 12 + 100 - 12,
}
READ_ONCE = "ct-kv"
TECHNIQUES = {"techniques": "repeat-2,ensemble-4", READ_ONCE: READ_ONCE}
STAGES = ("features", "techniques", READ_ONCE, *list(SELECTING)[1:])


def all_jobs() -> Iterator[Job]:
    """Every command, the cheapest methods first; each task and seed has a folder of its own, for many processes.

    Seeds come one after another, so that all tasks have the first one early.
    """
    crossed = {stage: ("--demos-by", ",".join(methods)) for stage, methods in SELECTING.items()}
    crossed |= {stage: ("--demos-by", "random", "--technique", names) for stage, names in TECHNIQUES.items()}
    for stage in STAGES:
        reading = FITTING if stage == READ_ONCE else READING
        for seed in SEEDS:
            for task in TASKS:
                row = ("--task", task, "--seeds", f"{seed},")
                yield Job(stage, f"{stage}-{task}-{seed}", (*row, *crossed[stage], *COMMON, *reading))


def main() -> None:
    """Print the commands, or execute them."""
    args = parser_of(__doc__ or "", STAGES, "table1_job").parse_args()
    jobs = [job for stage in args.stages for job in all_jobs() if job.stage == stage]
    run_jobs(args, jobs, DTYPE, [args.out])


if __name__ == "__main__":
    main()
