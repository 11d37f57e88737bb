"""Processor time of mistakes that are told before a model is loaded, of commands that need none, and of one label.

    python benchmarks/startup.py

Every command runs several times, in processes of its own.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from record import Table, parser

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
REVIEWS = EXAMPLES / "reviews"
NOTE = "Median processor seconds of several runs, each in a process of its own."
STUDY = shlex.quote(str(EXAMPLES / "study" / "shots.yaml"))
DEEPTHINK = [sys.executable, "-m", "deepthink_cli"]
# Compiled modules are kept, as they are where a package is installed.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
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


def main() -> None:
    """Measure, and show a row as soon as it is known."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=5)
    args = options.parse_args()
    table = Table(args, "Starting", ("command", "exit code", "processor s"), note=NOTE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = (REVIEWS / "demos.jsonl").read_text(encoding="utf-8")
        (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
        (folder / "one.jsonl").write_text('{"review": "A slow start, but I loved it."}\n', encoding="utf-8")
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


def processor_seconds(line: str, folder: Path, expected: int, runs: int = 1) -> float:
    """The median processor time of a command, in user and system mode; ends the program at another exit code."""
    seconds = []
    for _ in range(runs):
        command = [*DEEPTHINK, *shlex.split(line)]
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
            sys.exit(f"deepthink {line} ended with {child.returncode}, not {expected}")
        seconds.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
