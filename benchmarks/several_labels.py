"""Thresholds of label shares against a head, for rows with several labels: one to three TREC questions, joined.

    python benchmarks/several_labels.py DATA/trec --model MODEL

Labels are those of all questions of a row, without the few of `abbreviation`. Prints the metrics on 200 test rows.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

from deepthink_cli.cli.main import run

NAMES = ("abbreviation", "entity", "description", "human", "location", "number")
SIZES = {"demos": 16, "labelled": 150, "test": 200}


def questions(path: Path, draw: random.Random) -> list[tuple[str, str]]:
    """The questions of a split in another order, each with its label, without abbreviations."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [(row["text"], NAMES[row["coarse_label"]]) for row in rows]
    draw.shuffle(pairs)
    return [pair for pair in pairs if pair[1] != NAMES[0]]


def write_joined(folder: Path, pool: list[tuple[str, str]], draw: random.Random) -> dict[str, Path]:
    """Write files of rows, each of one to three questions that no other row has."""
    paths = {name: folder / f"{name}.jsonl" for name in SIZES}
    for name, count in SIZES.items():
        rows = []
        for _ in range(count):
            chosen = [pool.pop() for _ in range(draw.choice([1, 1, 2, 2, 3]))]
            labels = {label for _, label in chosen}
            rows.append({"text": " ".join(text for text, _ in chosen), "labels": [n for n in NAMES if n in labels]})
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return paths


def main() -> None:
    """Make a memory, store each kind of thresholds with it, and evaluate both on the same rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of TREC, with train.jsonl")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_joined(Path(folder), questions(args.data / "train.jsonl", draw), draw)
        memory = f"{folder}/memory.safetensors"
        run(["think", str(paths["demos"]), "-m", args.model, "-T", "1", "-q", "-o", memory])
        for kind in ("thresholds", "head"):
            run(["calibrate", memory, str(paths["labelled"]), "--calibrate", kind])
            run(["eval", memory, str(paths["test"])])


if __name__ == "__main__":
    main()
