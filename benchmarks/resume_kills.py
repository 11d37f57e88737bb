"""Kill `deepthink predict --resume` at random moments, and compare its output with one that was not interrupted.

    python benchmarks/resume_kills.py --kills 10 --seed 0

Prints a line for each kill: the seconds after the start, and the labelled inputs that were on disk.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PREDICT = [sys.executable, "-m", "deepthink_cli", "predict"]
EXAMPLES = [("a warm and funny film", "positive"), ("a dull and lifeless mess", "negative")]


def labels_of(path: Path) -> int:
    """The output rows in a partial file."""
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def main() -> None:
    """Measure an uninterrupted labelling, then kill others until `--kills` of them were killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--suffix", default=".jsonl", help="the format of the output, as in .csv or .parquet")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        demos, inputs, memory = folder / "demos.jsonl", folder / "in.jsonl", folder / "mem.safetensors"
        demos.write_text("".join(json.dumps({"review": text, "label": label}) + "\n" for text, label in EXAMPLES))
        words = [word for text, _ in EXAMPLES for word in text.split()]
        texts = (" ".join(draw.choices(words, k=draw.randint(1, 20))) for _ in range(options.rows))
        rows = [json.dumps({"id": number, "review": text}) for number, text in enumerate(texts)]
        rows[options.rows // 2] = "not JSON"
        inputs.write_text("\n".join(rows) + "\n")
        subprocess.run([*PREDICT[:-1], "think", demos, "-T", "2", "-q", "-o", memory], check=True)
        bad = ["--on-error", "skip", "--allow-errors", "1"]
        fixed: list[str | Path] = [*PREDICT, memory, inputs, "--calibrate", "batch", *bad, "-q", "-o"]
        whole, output = folder / f"whole{options.suffix}", folder / f"out{options.suffix}"
        started = time.monotonic()
        subprocess.run([*fixed, whole], check=True)
        seconds = time.monotonic() - started
        print(f"uninterrupted: {options.rows:,} rows in {seconds:.1f} s")
        different = kill_and_compare(fixed, whole, output, seconds, options.kills, draw)
    sys.exit(different > 0)


def kill_and_compare(
    command: list[str | Path], whole: Path, output: Path, seconds: float, kills: int, draw: random.Random
) -> int:
    """Kill labellings that continue each other; returns how many complete outputs had other bytes."""
    partial, killed, complete, different, finished = Path(f"{output}.partial"), 0, 0, 0, False
    while killed < kills or not finished:
        process = subprocess.Popen([*command, output, "--resume"])
        after = draw.uniform(0, seconds) if killed < kills else None
        try:
            code = process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed, finished = killed + 1, False
            print(f"kill {killed:2d} after {after:5.1f} s: {labels_of(partial):,} rows on disk", flush=True)
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
