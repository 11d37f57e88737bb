"""Figures in words and Markdown: shares, differences with their intervals, names and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from .discrimination import Difference
from .load import TASK_NAMES
from .pooled import Estimate

Change = Estimate | Difference
ZERO = 1e-9  # what rounding leaves of an end that is zero


def percent(share: float) -> str:
    """A share in percent with one decimal, without the sign."""
    return f"{100 * share:.1f}"


def points(difference: float) -> str:
    """A difference of shares in points, with its sign."""
    return f"{100 * difference:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def interval(ends: tuple[float, float] | None) -> str:
    """An interval in points; empty if there is none."""
    return "" if ends is None else " to ".join(_signed(100 * end) for end in ends)


def shown(change: Change) -> str:
    """A mean difference and its interval, in points."""
    return points(change.mean) + (f" [{interval(change.interval)}]" if change.interval else "")


def with_interval(change: Change) -> str:
    """The same in a sentence: with the unit, and with words where there is no interval."""
    ends = interval(change.interval) if change.interval else "too few seeds for an interval"
    return f"{points(change.mean)} points [{ends}]"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural if it is not 1."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def names(tasks: Sequence[str]) -> str:
    """Task names joined by commas and `and`."""
    words = [TASK_NAMES.get(task, task) for task in tasks]
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)


def described(file: str) -> str:
    """A model by the name of its file, with the bits of its weights."""
    match = re.fullmatch(r"(.+?)[.-](q(\d)\w*)\.gguf", file, re.IGNORECASE)
    return f"{match[1]} with its weights in {match[3]} bits (GGUF {match[2].upper()})" if match else file


def sizes(rows: pd.DataFrame, part: str) -> str:
    """How many inputs the rows of a part have."""
    found = sorted({len(right) for right in rows[rows["part"] == part]["right"]})
    return " or ".join(map(str, found)) or "no"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], text: int = 1) -> str:
    """A Markdown table whose first `text` columns are aligned left, the others right."""
    marks = ["---"] * text + ["--:"] * (len(headings) - text)
    lines = [headings, marks, *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _signed(end: float) -> str:
    """An end of an interval, with its sign also where it rounds to zero."""
    return f"{end:+.1f}" if abs(end) > ZERO else "0.0"


def short_name(name: str) -> str:
    """The name of a line, short enough for a picture."""
    return re.split(r": | \(", name)[0].replace("`", "").replace(" demonstrations", "").replace("thinking, ", "")
