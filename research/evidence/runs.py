"""The runs behind docs/evidence.md, in order of importance; prints or executes them.

    python -m research.evidence.runs --model MODEL --data-dir DIR -o research/tables/evidence [--print]

Every command can be interrupted and repeated: `deepthink run` skips the rows that exist. Results continue from the
tables in the folder, such as `continued.parquet`, and are packed again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from research.jobs import Job, parser_of, run_jobs
from research.table1.runs import MORE_ROWS, SEEDS, TASKS

from .methods import BY_DEV, CHOICES, SLOW, TECHNIQUES

SETTINGS = {
    "continued": ("--eta", "0.01,0.1"),
    "restarted": ("--eta", "0.01,0.1", "--positions", "restarted"),
    "official": ("--eta", "0.01", "--momentum", "0.9"),
}
AT, ROWS, DEV_ROWS = "1,2,3,5,8,12", MORE_ROWS, "150"
DEV = ("--choose-on", f"dev:{DEV_ROWS}")
FEW_SEEDS = range(3)
# The stages after the grid are smaller, and in float32: a processor without instructions for bfloat16 is slower in it.
FLOAT32, LATER_ROWS = ("--dtype", "float32"), "100"
LATER = ("--limit", LATER_ROWS, *FLOAT32)
PAPER = ("--eta", "0.01")  # continued positions and no momentum are the defaults
SUBJECT_ROWS = "30"


def grid(stage: str, seeds: Sequence[int], at: str) -> Iterator[Job]:
    """Every seed with the three settings."""
    for seed in seeds:
        for folder, method in SETTINGS.items():
            yield Job(stage, folder, (*_tasks(TASKS), *_seed(seed), "--limit", ROWS, *DEV, *method, *_readings(at)))


def pooled(stage: str, seeds: Sequence[int]) -> Iterator[Job]:
    """Methods of Table 1 with the scores of every row, of test rows and of dev rows for a bias; seed after seed."""
    thinking = (*PAPER, *_readings("1,5"))
    methods = [
        ("random", ("--demos-by", "random", *thinking)),
        ("techniques", ("--demos-by", "random", "--technique", ",".join(TECHNIQUES), "-T", "1")),
        ("choices", ("--demos-by", ",".join(CHOICES), "-T", "1")),
        ("choices", ("--demos-by", BY_DEV, *thinking)),  # its rows at T = 1 are there already
    ]
    for seed in seeds:
        for folder, arguments in methods:
            yield Job(stage, folder, (*_from_a_pool(seed), *arguments))


def slow_choices(stage: str, seeds: Sequence[int]) -> Iterator[Job]:
    """LENS and influence, on the rows of the other choices."""
    for seed in seeds:
        yield Job(stage, "choices", (*_from_a_pool(seed), "--demos-by", ",".join(SLOW), "-T", "1"))


def paper(stage: str, seeds: Sequence[int], at: str, *arguments: str) -> Iterator[Job]:
    """The paper's setting with other arguments, into a folder of its own; no T is chosen, and no dev row scored."""
    gate = () if "--eta" in arguments else PAPER
    for seed in seeds:
        yield Job(stage, stage, (*_tasks(TASKS), *_seed(seed), *LATER, *gate, *_readings(at), *arguments))


def subjects(stage: str) -> Iterator[Job]:
    """MMLU and BBH with the demonstrations of the data sets, some rows of each of their tasks."""
    for group in ("mmlu", "bbh"):
        rows = (*_tasks([group]), *_seed(0), "--limit", SUBJECT_ROWS)
        yield Job(stage, stage, (*rows, *FLOAT32, *PAPER, *_readings("1,5")))


def all_jobs(at: str = AT) -> list[Job]:
    """Every command, in order of importance."""
    return [
        *grid("grid", range(5), at),
        *paper("own", FEW_SEEDS, "1,5"),
        *paper("shots", FEW_SEEDS, "1,5", "--shots", "4,16"),
        Job("orders", "orders", (str(Path(__file__).with_name("orders.yaml")), *FLOAT32)),
        *paper("etas", FEW_SEEDS, "1,5", "--eta", "0.001,0.3"),
        *paper("long", FEW_SEEDS, "1,15", "--eta", "0.01,0.1"),
        *paper("chat", FEW_SEEDS, "1,5", "--chat"),
        *pooled("methods", range(10)),
        *subjects("subjects"),
        *slow_choices("slow-choices", SEEDS),
    ]


def _tasks(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("--task", name)]


def _seed(seed: int) -> tuple[str, str]:
    return "--seeds", f"{seed},"


def _from_a_pool(seed: int) -> tuple[str, ...]:
    return (*_tasks(TASKS), *_seed(seed), "--limit", ROWS, *FLOAT32, *DEV)


def _readings(at: str) -> tuple[str, ...]:
    return ("-T", at.rpartition(",")[2], "--at", at)


def main() -> None:
    """Print the commands, or execute them."""
    parser = parser_of(__doc__ or "", list(dict.fromkeys(job.stage for job in all_jobs())), "evidence_job")
    parser.add_argument("--at", default=AT, help="iterations to score; the last is T")
    parser.add_argument("--dtype", default="bfloat16")
    args = parser.parse_args()
    jobs = [job for job in all_jobs(args.at) if job.stage in args.stages]
    run_jobs(args, jobs, args.dtype, [args.out / name for name in sorted({job.folder for job in jobs})])


if __name__ == "__main__":
    main()
