"""Kill `deepthink predict --resume` at random moments, and compare its output with one that was not interrupted.

    python benchmarks/resume_kills.py --kills 10 --seed 0
    python benchmarks/resume_kills.py --kills 20 --seed 0 --workers 2@ray --files 8

With `--workers` every second kill hits a worker on average; the others hit the command itself. Prints a line for each
kill: the seconds after the start, and the labelled inputs that were on disk. Linux only with `--workers`: finds the
processes in /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PREDICT = [sys.executable, "-m", "deepthink_cli", "predict"]
EXAMPLES = [("a warm and funny film", "positive"), ("a dull and lifeless mess", "negative")]
WORKERS = (b"deepthink_cli.experiments.executors.local", b"ray::Actor")  # what their command lines contain


def labels_of(path: Path) -> int:
    """The output rows in a partial file."""
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def workers() -> list[int]:
    """The worker processes of this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] * any(word in words for word in WORKERS)
    return found


def write_inputs(folder: Path, texts: Sequence[str], files: int) -> Path:
    """A folder of Parquet files, or JSON Lines, in which one line is not JSON."""
    if files:
        import pyarrow as pa
        import pyarrow.parquet as pq

        inputs, size = folder / "in", -(-len(texts) // files)
        inputs.mkdir()
        for number, start in enumerate(range(0, len(texts), size)):
            part = texts[start : start + size]
            rows = {"id": list(range(start, start + len(part))), "review": part}
            pq.write_table(pa.table(rows), inputs / f"part-{number:03d}.parquet")
        return inputs
    inputs = folder / "in.jsonl"
    lines = [json.dumps({"id": number, "review": text}) for number, text in enumerate(texts)]
    lines[len(lines) // 2] = "not JSON"
    inputs.write_text("\n".join(lines) + "\n")
    return inputs


def main() -> None:
    """Measure an uninterrupted labelling, then kill others until `--kills` of them were killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--suffix", default=".jsonl", help="the format of the output, as in .csv or .parquet")
    parser.add_argument("--workers", help="who labels in the killed commands, as in 2@ray; the other uses no workers")
    parser.add_argument("--files", type=int, default=0, help="Parquet files of a folder; 0: one file of lines")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        demos, memory = folder / "demos.jsonl", folder / "mem.safetensors"
        demos.write_text("".join(json.dumps({"review": text, "label": label}) + "\n" for text, label in EXAMPLES))
        words = [word for text, _ in EXAMPLES for word in text.split()]
        texts = [" ".join(draw.choices(words, k=draw.randint(1, 20))) for _ in range(options.rows)]
        inputs = write_inputs(folder, texts, options.files)
        subprocess.run([*PREDICT[:-1], "think", demos, "-T", "2", "-q", "-o", memory], check=True)
        bad = ["--on-error", "skip", "--allow-errors", "1"]
        fixed: list[str | Path] = [*PREDICT, memory, inputs, "--calibrate", "batch", *bad, "-q", "-o"]
        whole, output = folder / f"whole{options.suffix}", folder / f"out{options.suffix}"
        command = [*fixed[:-1], *(["--workers", options.workers] if options.workers else []), "-o"]
        subprocess.run([*fixed, whole], check=True)
        started = time.monotonic()
        subprocess.run([*command, output], check=True)
        seconds = time.monotonic() - started
        print(f"uninterrupted: {options.rows:,} rows in {seconds:.1f} s", flush=True)
        different = output.read_bytes() != whole.read_bytes()
        output.unlink()
        different += kill_and_compare(command, whole, output, seconds, options.kills, draw)
    sys.exit(different > 0)


def kill_and_compare(
    command: list[str | Path], whole: Path, output: Path, seconds: float, kills: int, draw: random.Random
) -> int:
    """Kill labellings that continue each other; returns how many complete outputs had other bytes."""
    partial, killed, complete, different, finished = Path(f"{output}.partial"), 0, 0, 0, False
    while killed < kills or not finished:
        process = subprocess.Popen([*command, output, "--resume"])
        code = None
        while killed < kills and code is None:
            after = draw.uniform(0, seconds)
            try:
                code = process.wait(after)
            except subprocess.TimeoutExpired:
                killed, finished = killed + 1, False
                hit = (
                    draw.choice(workers() or [process.pid]) if "--workers" in command and draw.random() < 0.5 else None
                )
                os.kill(hit or process.pid, signal.SIGKILL)
                who = "worker" if hit not in (None, process.pid) else "command"
                print(f"kill {killed:2d} after {after:5.1f} s, {who}: {labels_of(partial):,} rows on disk", flush=True)
                if who == "command":
                    code = process.wait()
        code = process.wait() if code is None else code
        if code == -signal.SIGKILL:
            if partial.exists() or not output.exists():
                continue
            code = 0  # killed between the end of its work and its exit
        same = code == 0 and output.read_bytes() == whole.read_bytes()
        complete, different, finished = complete + 1, different + (not same), True
        print(f"complete: exit code {code}, {'the same bytes' if same else 'OTHER BYTES'}", flush=True)
        output.unlink(missing_ok=True)
    print(f"{killed} kills, {complete} complete outputs, {different} of them different")
    return different


if __name__ == "__main__":
    main()
