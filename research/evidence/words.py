"""Figures in words and Markdown: shares, differences with their intervals, names and tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from .compared import Difference
from .load import TASK_NAMES
from .statistics import Interval

WIDTH = 119  # characters of a line of a page
ZERO = 1e-9  # what rounding leaves of an end that is zero


def percent(share: float) -> str:
    """A share in percent with one decimal, without the sign."""
    return f"{100 * share:.1f}"


def points(difference: float) -> str:
    """A difference of shares in points, with its sign."""
    return f"{100 * difference:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def interval(ends: Interval) -> str:
    """An interval in points."""
    return " to ".join(_signed(100 * end) for end in ends)


def shown(change: Difference) -> str:
    """A mean difference and its interval, in points; one seed gives no interval."""
    if not all(map(math.isfinite, change.interval)):
        return f"{points(change.mean)} (one seed)"
    return f"{points(change.mean)} [{interval(change.interval)}]"


def names(tasks: Sequence[str]) -> str:
    """Task names joined by commas and `and`."""
    words = [TASK_NAMES.get(task, task) for task in tasks]
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)


def described(file: str) -> str:
    """A model by the name of its file, with the bits of its weights."""
    match = re.fullmatch(r"(.+?)[.-](q(\d)\w*)\.gguf", file, re.IGNORECASE)
    return f"{match[1]} with its weights in {match[3]} bits (GGUF {match[2].upper()})" if match else file


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], text: int = 1) -> str:
    """A Markdown table whose first `text` columns are aligned left, the others right."""
    marks = ["---"] * text + ["--:"] * (len(headings) - text)
    lines = [headings, marks, *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short_name(name: str) -> str:
    """The name of a line, short enough for a picture."""
    return re.split(r": | \(", name)[0].replace("`", "").replace(" demonstrations", "").replace("thinking, ", "")


def _signed(end: float) -> str:
    """An end of an interval, with its sign also where it rounds to zero."""
    return f"{end:+.1f}" if abs(end) > ZERO else "0.0"
