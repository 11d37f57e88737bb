"""Processor time of mistakes that are told before a model is loaded, of commands that need none, and of one label.

    python benchmarks/startup.py [--model FOLDER]

Every command runs several times, in processes of its own. With `--model`, commands with this model are measured,
in turns with transformers, which loads it and runs one pass.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from record import Table, parser

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
REVIEWS = EXAMPLES / "reviews"
NOTE = "Median processor seconds of several runs, each in a process of its own, on one thread."
MODEL_NOTE = (
    "Median processor seconds and peak MiB of several runs, each in a process of its own, on one thread, in turns with "
    "a program of five lines in which transformers loads the model and its tokenizer and runs one pass."
)
MODEL_COLUMNS = ("command", "processor s", "transformers s", "MiB", "transformers MiB")
MODEL_RATIOS = ("processor s / transformers s", "MiB / transformers MiB")
TRANSFORMERS = [sys.executable, str(Path(__file__).parent / "peer_programs" / "by_transformers.py")]
TEXT = "A slow start, but I loved it."
STUDY = shlex.quote(str(EXAMPLES / "study" / "shots.yaml"))
DEEPTHINK = [sys.executable, "-m", "deepthink_cli"]
# Compiled modules are kept, as they are where a package is installed. A thread that waits for another would spin.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT["OMP_NUM_THREADS"] = "1"
# In a folder with mem.safetensors, rows.jsonl (labelled), one.jsonl, and the runs runs/weather and runs/shots.
MISTAKES = (
    "think rows.jsonl --bogus",
    "think missing.jsonl -o m.safetensors",
    "think rows.jsonl --eta 2",
    "think rows.jsonl --label-field topic -o m.safetensors",
    "think - -o m.safetensors",
    "think rows.jsonl -m ./nowhere -o m.safetensors",
    "calibrate missing.safetensors",
    "predict mem.safetensors missing.csv",
    "predict missing.safetensors one.jsonl",
    "predict mem.safetensors one.jsonl -o labels.foo",
    "predict mem.safetensors one.jsonl -m ./nowhere",
    "eval mem.safetensors one.jsonl",
    "eval mem.safetensors --task nope",
    "run --task nope -o run",
    "tune missing.jsonl -o m.safetensors",
    "select missing.jsonl --demos-by random --shots 2 -o s.jsonl",
    "export missing.safetensors --to peft -o adapter",
    "generate mem.safetensors missing.jsonl",
    "quantize missing.safetensors -o q.safetensors",
    "diff missing.safetensors mem.safetensors",
    "report missing",
    "study plan missing",
)
OTHERS = (
    "--help",
    "think --help",
    "inspect mem.safetensors",
    "tasks",
    "list selections",
    "study list",
    "report runs/weather",
    "report runs/shots",
)
# In a folder with mem.safetensors of MODEL, one.jsonl, and ten.jsonl and thirty.jsonl (labelled).
WITH_MODEL = (
    "predict mem.safetensors one.jsonl",
    "think ten.jsonl -m MODEL -o ten.safetensors",
    "eval mem.safetensors thirty.jsonl",
)


def main() -> None:
    """Measure, and show a row as soon as it is known."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--model", type=Path, help="a model's folder, as benchmarks/real_model.py prints one")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = (REVIEWS / "demos.jsonl").read_text(encoding="utf-8")
        (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
        (folder / "one.jsonl").write_text(f'{{"review": "{TEXT}"}}\n', encoding="utf-8")
        if args.model is not None:
            beside_transformers(args, folder)
            return
        table = Table(args, "Starting", ("command", "exit code", "processor s"), note=NOTE)
        processor_seconds("think rows.jsonl -T 1 -q -o mem.safetensors", folder, 0)
        weather = shlex.quote(str(EXAMPLES / "custom_task" / "weather.yaml"))
        data = shlex.quote(str(EXAMPLES / "custom_task" / "data"))
        run = f"run --task {weather} --data-dir {data} --seeds 2 --technique repeat-2 -q -o runs/weather"
        processor_seconds(run, folder, 0)
        processor_seconds(f"study run {STUDY} -q -o runs/shots", folder, 0)
        for code, lines in ((2, MISTAKES), (0, (*OTHERS, "predict mem.safetensors one.jsonl"))):
            for line in lines:
                seconds = processor_seconds(line, folder, code, args.runs)
                table.add(f"`{line.replace(f'{ROOT}/', '')}`", code, seconds)


def beside_transformers(args: Namespace, folder: Path) -> None:
    """Measure commands with a model in turns with transformers; a first run of each is not counted."""
    model = str(args.model.resolve())
    rows = (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    labelled = (REVIEWS / "labelled.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "ten.jsonl").write_text("".join(rows[:10]), encoding="utf-8")
    (folder / "thirty.jsonl").write_text("".join(labelled[:30]), encoding="utf-8")
    cost([*DEEPTHINK, *shlex.split(f"think rows.jsonl -m {shlex.quote(model)} -q -o mem.safetensors")], folder)
    table = Table(args, "Starting with a model", MODEL_COLUMNS, MODEL_RATIOS, MODEL_NOTE, part="model")
    for line in WITH_MODEL:
        ours = [*DEEPTHINK, *(model if word == "MODEL" else word for word in shlex.split(line))]
        rounds = [(*cost(ours, folder), *cost([*TRANSFORMERS, model, TEXT], folder)) for _ in range(args.runs + 1)]
        seconds, size, their_seconds, their_size = map(statistics.median, zip(*rounds[1:], strict=True))
        table.add(f"`{line}`", seconds, their_seconds, round(size), round(their_size))


def processor_seconds(line: str, folder: Path, expected: int, runs: int = 1) -> float:
    """The median processor time of a command; ends the program at another exit code."""
    return statistics.median(cost([*DEEPTHINK, *shlex.split(line)], folder, expected)[0] for _ in range(runs))


def cost(command: list[str], folder: Path, expected: int = 0) -> tuple[float, float]:
    """The processor seconds of a command, in user and system mode, and its peak memory in MiB."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != expected:
        sys.exit(f"{shlex.join(command)} ended with {child.returncode}, not {expected}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
