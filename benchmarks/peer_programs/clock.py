"""How `peers.py` asks a system: load, score one row, then score the rows of a file under the clock, all on one core.

    PYTHON PROGRAM FOLDER ANSWER [ARGUMENT ...]

Needs the standard library alone, since every system has an environment of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEMONSTRATIONS = "demonstrations.txt"
MEMORY = "memory.safetensors"
FIRST, ROWS = "first.jsonl", "rows.jsonl"
Scores = list[list[float]]  # for each row, the log-probability of each of its answers in nats
Score = Callable[[Path], Scores]


@dataclass(frozen=True)
class Row:
    """What follows the demonstrations, and the texts that may follow it."""

    prompt: str
    answers: list[str]


def read_rows(path: Path) -> list[Row]:
    """The rows of a file of JSON lines."""
    found = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Row(row["prompt"], row["answers"]) for row in found]


def main(load: Callable[..., Score]) -> None:
    """Call `load` with the folder and the further arguments, and write what the function that it returns takes.

    `loading` are the seconds until the first row is scored, `seconds` those from the file of all rows to their scores.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    folder, answer, *arguments = sys.argv[1:]
    began = time.perf_counter()
    score = load(Path(folder), *arguments)
    score(Path(folder, FIRST))
    loaded = time.perf_counter()
    scores = score(Path(folder, ROWS))
    found: dict[str, Any] = {"loading": loaded - began, "seconds": time.perf_counter() - loaded, "scores": scores}
    Path(answer).write_text(json.dumps(found), encoding="utf-8")
