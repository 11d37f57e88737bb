"""The runs behind docs/evidence.md, in order of importance; prints or executes them.

    python -m research.evidence.runs --model MODEL --data-dir DIR -o research/tables/evidence [--print]

Every command can be interrupted and repeated: `deepthink run` skips the rows that exist. Results continue from the
tables in the folder, such as `continued.parquet`, and are packed again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from research.jobs import Job, parser_of, run_jobs
from research.packing import continued
from research.table1.runs import MORE_ROWS, SEEDS, TASKS

from .demonstrations import FLIPPED, drawn_examples, relabelled, repeated, write_examples
from .load import ALL_ROWS
from .methods import BY_DEV, CHOICES, SLOW, TECHNIQUES

SETTINGS = {
    "continued": ("--eta", "0.01,0.1"),
    "restarted": ("--eta", "0.01,0.1", "--positions", "restarted"),
    "official": ("--eta", "0.01", "--momentum", "0.9"),
}
AT, ROWS, DEV_ROWS = "1,2,3,5,8,12", MORE_ROWS, "150"
DEV = ("--choose-on", f"dev:{DEV_ROWS}")
REPEATED_TASKS, FLIPPED_TASKS, TIMES = ("sst2", "mr", "trec"), ("sst2", "mr"), (2, 5)
CONTROL_SEEDS = range(3)
# The stages after the grid are smaller, and in float32: a processor without instructions for bfloat16 is slower in it.
FLOAT32, LATER_ROWS = ("--dtype", "float32"), "100"
LATER = ("--limit", LATER_ROWS, *FLOAT32)
PAPER = ("--eta", "0.01")  # continued positions and no momentum are the defaults
PARTS = "gate,keys-only,values-only,lower-half,upper-half"
SUBJECT_ROWS = "30"
DEMONSTRATIONS = "demonstrations"  # subfolder of the evidence for files of demonstrations


def grid(stage: str, seeds: Sequence[int], at: str) -> Iterator[Job]:
    """Every seed with the three settings."""
    for seed in seeds:
        for folder, method in SETTINGS.items():
            yield Job(stage, folder, (*_tasks(TASKS), *_seed(seed), "--limit", ROWS, *DEV, *method, *_readings(at)))


def controls(stage: str, at: str) -> Iterator[Job]:
    """Repeated demonstrations at T = 1, and demonstrations with exchanged label words at every T.

    Both evaluate the rows of the grid, so that their results are paired with the grid's.
    """
    for seed in CONTROL_SEEDS:
        for task in REPEATED_TASKS:
            for times in TIMES:
                demos = ("--demos", f"{DEMONSTRATIONS}/{task}-{seed}-x{times}.jsonl")
                yield Job(stage, "repeated", (*_tasks([task]), *_seed(seed), "--limit", ROWS, *DEV, "-T", "1", *demos))
        for task in FLIPPED_TASKS:
            for positions in ("continued", "restarted"):
                demos = ("--demos", f"{DEMONSTRATIONS}/{task}-{seed}-flipped.jsonl")
                method = ("--eta", "0.1", "--positions", positions, *_readings(at))
                yield Job(stage, "flipped", (*_tasks([task]), *_seed(seed), "--limit", ROWS, *method, *demos))


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


def all_rows(stage: str, seeds: Sequence[int]) -> Iterator[Job]:
    """The paper's setting on all test rows, of AG News on the 2,000 of the authors' code."""
    for seed in seeds:
        yield Job(stage, stage, (*_tasks(TASKS), *_seed(seed), *FLOAT32, *PAPER, *_readings("1,5")))


def subjects(stage: str) -> Iterator[Job]:
    """MMLU and BBH with the demonstrations of the data sets, some rows of each of their tasks."""
    for group in ("mmlu", "bbh"):
        rows = (*_tasks([group]), *_seed(0), "--limit", SUBJECT_ROWS)
        yield Job(stage, stage, (*rows, *FLOAT32, *PAPER, *_readings("1,5")))


def all_jobs(at: str = AT) -> list[Job]:
    """Every command, in order of importance."""
    return [
        *grid("grid", range(5), at),
        *controls("controls", at),
        *in_float32("float32", at),
        *paper("own", CONTROL_SEEDS, "1,5"),
        *paper("shots", CONTROL_SEEDS, "1,5", "--shots", "4,16"),
        Job("orders", "orders", (str(Path(__file__).with_name("orders.yaml")), *FLOAT32)),
        *paper("etas", CONTROL_SEEDS, "1,5", "--eta", "0.001,0.3"),
        *paper("long", CONTROL_SEEDS, "1,15", "--eta", "0.01,0.1"),
        *paper("more-seeds", range(5, 10), "1,5"),
        *paper("chat", CONTROL_SEEDS, "1,5", "--chat"),
        *pooled("methods", range(10)),
        *paper("parts", CONTROL_SEEDS, "1,5", "--eta", "0.1", "--update", PARTS),
        *paper("calibrations", CONTROL_SEEDS, "1,5", "--calibrate", "contextual,pmi"),
        *subjects("subjects"),
        *all_rows(ALL_ROWS, range(5)),
        *slow_choices("slow-choices", SEEDS),
    ]


def write_demonstrations(out: Path, data_dir: Path | None) -> None:
    """Write the demonstration files that the controls read."""
    for seed in CONTROL_SEEDS:
        for task in REPEATED_TASKS:
            for times in TIMES:
                examples = repeated(drawn_examples(task, seed, data_dir), times)
                write_examples(out / DEMONSTRATIONS / f"{task}-{seed}-x{times}.jsonl", examples)
        for task in FLIPPED_TASKS:
            examples = relabelled(drawn_examples(task, seed, data_dir), FLIPPED)
            write_examples(out / DEMONSTRATIONS / f"{task}-{seed}-flipped.jsonl", examples)


def in_float32(stage: str, at: str) -> Iterator[Job]:
    """Two tasks of the first seed in float32, for comparison."""
    for folder in ("continued", "restarted"):
        method = (*SETTINGS[folder], *_readings(at))
        arguments = (*_tasks(["sst2", "sst5"]), *_seed(0), "--limit", ROWS, *FLOAT32, *DEV, *method)
        yield Job(stage, f"float32-{folder}", arguments)


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
    demonstrations = args.out / DEMONSTRATIONS
    if not args.print and any(DEMONSTRATIONS in word for job in jobs for word in job.arguments):
        with continued([demonstrations]):
            write_demonstrations(args.out, args.data_dir)
    folders = [demonstrations, *(args.out / name for name in sorted({job.folder for job in jobs}))]
    run_jobs(args, jobs, args.dtype, folders)


if __name__ == "__main__":
    main()
