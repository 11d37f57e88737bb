"""The table of README.md, and the picture of docs/performance.md, from what is measured and committed.

    python -m research.front_page [--check]

Times are read from the record of benchmarks/speed.py, accuracies from the tables of research/tables/evidence/.
With --check nothing is written, and the exit code is 1 if README.md has another table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.record import RECORDS
from deepthink_cli.report.figures import LEGEND

from .evidence.compared import OF_HEAD, PAPER, Compared, lines
from .evidence.load import TASK_NAMES, Line, in_order, read_evidence
from .evidence.measures import Floats
from .evidence.words import percent, shown, table
from .packing import TABLES, unpacked
from .style import DEEPTHINK, HARNESS, OFFICIAL, canvas, write

ROOT = Path(__file__).resolve().parent.parent
README, RECORD, EVIDENCE = ROOT / "README.md", RECORDS / "speed.json", TABLES / "evidence"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- /table -->)", re.DOTALL)
SYSTEMS = {"harness": "lm-evaluation-harness", "official": "official way", "deepthink": "deepthink"}
REAL, CANDIDATE_TOKENS = "smollm2-135m-instruct", 2


@dataclass(frozen=True)
class Times:
    """Seconds of one system for 64 inputs, by the number of demonstration tokens."""

    system: str
    seconds: dict[int, float]


def times(record: dict[str, Any]) -> list[Times]:
    """The times of the model of the front page in a record, for candidates of two tokens."""
    table = pd.DataFrame(record["rows"], columns=record["columns"])
    shown = table[(table["shape"] == REAL) & (table["c"] == CANDIDATE_TOKENS)].set_index("L")
    return [Times(name, shown[column].to_dict()) for column, name in SYSTEMS.items()]


def accuracies(of_lines: Mapping[str, Compared]) -> str:
    """Accuracy at T = 1, with thinking and with the head, which use the same labelled rows, by task and in the mean."""
    thinking, head = (of_lines[name].by("accuracy") for name in (PAPER, OF_HEAD))
    first, thought, corrected = (
        {task: value.mean() for task, value in of_task.items()}
        for of_task in (_right(of_lines[PAPER].before), _right(of_lines[PAPER].after), _right(of_lines[OF_HEAD].after))
    )
    rows = [[TASK_NAMES[task], *(percent(side[task]) for side in (first, thought, corrected))] for task in first]
    means = [percent(head.before), *(f"{percent(each.after)} ({shown(each)})" for each in (thinking, head))]
    return table(["", "T = 1", "thinking", "head"], [*rows, ["all five", *means]])


def _right(line: Line) -> dict[str, Floats]:
    """The accuracies over seeds, by task."""
    tasks = in_order({task for task, _ in line})
    return {
        task: np.array([parts["test"].right.mean() for (name, _), parts in line.items() if name == task])
        for task in tasks
    }


def costs(of_systems: Sequence[Times]) -> Figure:
    """Seconds for 64 inputs against the number of demonstration tokens, for every system."""
    figure = canvas(2.3)
    _costs(figure.add_subplot(), of_systems)
    return figure


def _costs(axes: Axes, of_systems: Sequence[Times]) -> None:
    looks = ((HARNESS, "s"), (OFFICIAL, "^"), (DEEPTHINK, "o"))
    for each, (colour, marker) in zip(of_systems, looks, strict=True):
        lengths, seconds = list(each.seconds), list(each.seconds.values())
        axes.plot(lengths, seconds, label=each.system, color=colour, marker=marker, markersize=3.4)
    axes.set_yscale("log")
    axes.set_xticks(list(of_systems[0].seconds))
    axes.set_ylim(1, 10_000)
    axes.set_xlabel("demonstration tokens L")
    axes.set_ylabel("seconds for 64 inputs")
    axes.legend(ncols=1, **{**LEGEND, "loc": "upper left"})


def with_table(readme: str, lines: str) -> str:
    """README.md with the table between its marks."""
    if TABLE.search(readme) is None:
        raise SystemExit("README.md: no <!-- table --> marks")
    return TABLE.sub(lambda _: f"{lines}\n", readme)


def main() -> None:
    """Write the table and the pictures, or check the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the table is another one")
    args = parser.parse_args()
    with unpacked(EVIDENCE) as folder:
        found = {each.name: each for each in lines(read_evidence(folder))}
    before = README.read_text(encoding="utf-8")
    after = with_table(before, accuracies(found))
    if args.check:
        sys.exit(
            0 if before == after else "README.md: not the table of the evidence; run python -m research.front_page"
        )
    measured = times(json.loads(RECORD.read_text(encoding="utf-8")))
    write(ROOT / "docs" / "performance.png", costs, measured)
    README.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
