"""The table and the plot of README.md, and the picture of docs/performance.md, from what is measured and committed.

    python -m research.front_page [--check]

Times are read from the record of benchmarks/speed.py, accuracies from the tables of research/tables/evidence/.
With --check nothing is written, and the exit code is 1 if README.md has another table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.record import RECORDS
from deepthink_cli.evaluation.metrics import ALPHA
from deepthink_cli.report.figures import GREY, LEGEND

from .evidence.cells import CORE_ETAS, PAPER, choices, fixed
from .evidence.discrimination import Difference, Pair, chosen_pairs, compare, holm, pairs_at, without_dev
from .evidence.findings import fixed_sentence, interval, points, with_interval
from .evidence.load import TASK_NAMES, read_evidence
from .evidence.statistics import over_seeds_and_rows, over_tasks
from .evidence.tables import table
from .packing import TABLES, unpacked
from .style import CALIBRATED, DEEPTHINK, HARNESS, OFFICIAL, RAW, canvas, of_scores, write

ROOT = Path(__file__).resolve().parent.parent
README, RECORD, EVIDENCE = ROOT / "README.md", RECORDS / "speed.json", TABLES / "evidence"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- /table -->)", re.DOTALL)
SYSTEMS = {"harness": "lm-evaluation-harness", "official": "official way", "deepthink": "deepthink"}
REAL, CANDIDATE_TOKENS = "smollm2-135m-instruct", 2
SETTINGS = {  # positions, and the etas that dev rows choose from; the first one is shown calibrated and in the plot
    "the paper's setting": ("continued", (0.01,)),
    "restarted, eta tuned": ("restarted", CORE_ETAS),
    "continued, eta tuned": ("continued", CORE_ETAS),
    "momentum": ("official", (0.01,)),
}
SHOWN = 2  # of these; the others count in the correction for the number of comparisons


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


def chosen_in(grid: pd.DataFrame) -> list[pd.DataFrame]:
    """T and eta as dev rows choose them, for every task and seed, in each of the settings."""
    return [choices(grid[grid["setting"] == positions], etas) for positions, etas in SETTINGS.values()]


def accuracies(chosen: Sequence[pd.DataFrame], paired: Sequence[Pair]) -> str:
    """Accuracy of T = 1 and of thinking, raw and calibrated, for each task and all of them.

    `paired` has the dev rows of the first setting, on which a bias is fitted for T = 1. Bold where p is below 5 % after
    Holm's correction over all settings, raw and calibrated; a sentence says what is.
    """
    lines: list[tuple[str, float, list[Difference], list[Difference]]] = []
    for task in (*chosen[0]["task"].unique(), None):
        settings = [rows if task is None else rows[rows["task"] == task] for rows in chosen]
        raw = [compare(without_dev(rows["before"], rows["after"]), "accuracy") for rows in settings]
        calibrated = [compare(without_dev(rows["before"], rows["calibrated_after"]), "batch") for rows in settings]
        biased = compare([pair for pair in paired if task in (None, pair.task)], "fitted").before
        lines.append(("all five" if task is None else TASK_NAMES[str(task)], biased, raw, calibrated))
    adjusted = holm([each.p for _, _, *both in lines for of_kind in both for each in of_kind])
    p_values, cells = iter(adjusted), []
    for name, biased, raw, calibrated in lines:
        steps, corrected = ([_change(each, next(p_values)) for each in of_kind] for of_kind in (raw, calibrated))
        firsts = [_percent(biased), _percent(calibrated[0].before)]
        cells.append([name, _percent(raw[0].before), *steps[:SHOWN], *firsts, corrected[0]])
    names = [f"thinking, {name}" for name in [*SETTINGS][:SHOWN]]
    left = "those in bold are" if min(adjusted) < ALPHA else "no difference is"
    headings = ["", "T = 1", *names, "T = 1, bias by the same labels", "T = 1, calibrated", f"{names[0]}, calibrated"]
    return (
        table(headings, cells)
        + f"\n\nAfter Holm's correction over {len(adjusted)} comparisons ({len(chosen)} settings, of which {SHOWN} are "
        f"shown; raw and calibrated; every task and their mean) {left} left."
    )


def beside_the_table(grid: pd.DataFrame, paired: Sequence[Pair]) -> str:
    """What thinking changes after the bias, with T = 5 for all, and at every T and eta."""
    biased, five = compare(paired, "fitted"), pairs_at(grid[grid["setting"] == PAPER[0]], PAPER[1], 5)
    said = (
        "After the bias that these labels fit, thinking in the paper's setting changes the mean of T = 1 by "
        f"{with_interval(biased)}. With T = 5 for all and no further labels it changes accuracy by "
        f"{with_interval(compare(five, 'accuracy'))}. "
        f"{fixed_sentence(fixed(grid), 'docs/evidence.md')}"
    )
    return textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False)


def costs(of_systems: Sequence[Times]) -> Figure:
    """Seconds for 64 inputs against the number of demonstration tokens, for every system."""
    figure = canvas(2.3)
    _costs(figure.add_subplot(), of_systems)
    return figure


def front(of_systems: Sequence[Times], shown: pd.DataFrame) -> Figure:
    """The cost of scoring, and below it accuracy at T = 1 and with thinking, raw and calibrated.

    Intervals are over seeds and test rows, as in the table.
    """
    figure = canvas(4.7)
    above, below = figure.subfigures(2, 1)
    _costs(above.add_subplot(), of_systems)
    axes, tasks = below.add_subplot(), list(shown.groupby("task", observed=True))
    for shift, colour, calibrated in ((-0.15, RAW, False), (0.15, CALIBRATED, True)):
        for place, (_, rows) in enumerate(tasks):
            name, after = ("calibrated_right", "calibrated_after") if calibrated else ("right", "after")
            for side, column, face in ((-0.07, "before", "white"), (0.07, after, colour)):
                right = np.stack([row[name] for row in rows[column]]).astype(np.float64)  # [seeds, rows]
                ends, _ = over_tasks(right.mean(), [over_seeds_and_rows(right)])
                x = place + shift + side
                axes.plot([x, x], [100 * end for end in ends], color=colour, linewidth=0.9)
                axes.plot(x, 100 * right.mean(), "o", color=colour, markerfacecolor=face, markersize=3.4)
    marked = {"T = 1": "white", "thinking, the paper's setting": GREY}
    handles = of_scores() + [
        Line2D([], [], linestyle="", marker="o", color=GREY, markerfacecolor=face, label=name)
        for name, face in marked.items()
    ]
    below.legend(handles=handles, ncols=2, **{**LEGEND, "handlelength": 1.2})
    axes.set_xticks(range(len(tasks)), [TASK_NAMES[str(task)] for task, _ in tasks])
    axes.set_ylabel("accuracy (%), 5 seeds,\n95 % intervals")
    axes.set_ylim(0, 100)
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


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _change(change: Difference, p: float) -> str:
    step = points(change.mean)
    return f"{_percent(change.after)} ({f'**{step}**' if p < ALPHA else step}: {interval(change.interval)})"


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
        grid = read_evidence(folder).grid
    chosen, paired = chosen_in(grid), chosen_pairs(grid, PAPER[0], [PAPER[1]])
    before = README.read_text(encoding="utf-8")
    after = with_table(before, f"{accuracies(chosen, paired)}\n\n{beside_the_table(grid, paired)}")
    if args.check:
        sys.exit(
            0 if before == after else "README.md: not the table of the evidence; run python -m research.front_page"
        )
    measured = times(json.loads(RECORD.read_text(encoding="utf-8")))
    write(ROOT / "docs" / "front.png", front, measured, chosen[0])
    write(ROOT / "docs" / "performance.png", costs, measured)
    README.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
