"""One row of a report, as formatted text and as numbers, and published figures beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.registry import Registry, instance_of

if TYPE_CHECKING:
    from deepthink_cli.report.significance import Spread
    from deepthink_cli.report.tables import PublishedFigure, TableRow

NONE = "-"  # in place of a missing baseline


@dataclass(frozen=True)
class Published:
    """Published figures, which `report --published` shows next to a run's figures.

    `find` gives the figures of a row, for plain in-context learning and for Deep-Thinking, or None. `notes` gives lines
    below the tables about the rows with published figures, or about their absence. Both are functions, or places of
    functions (`module:function`).
    """

    find: Callable[[TableRow], tuple[PublishedFigure | None, PublishedFigure | None]] | str
    notes: Callable[[Sequence[TableRow]], Sequence[str]] | str
    summary: str
    source: str


PUBLISHED: Registry[Published] = Registry("published", {}, instance_of(Published))


def texts(row: TableRow) -> dict[str, str]:
    """The formatted cells by column heading; a cell without a value is empty."""
    gain = row.gain
    ends = None if gain is None else gain.ci95
    return {
        "task": _name(row),
        "seeds": str(len(row.scores)),
        "T": _middle(row.iterations),
        "eta": _middle(row.etas) if row.arm.chooses_eta else "",
        "ICL": NONE if row.plain is None else _percent(row.plain),
        "Deep-Thinking": _percent(row.thinking),
        "difference": NONE if gain is None else f"{100 * gain.spread.mean:+.1f}",
        "95 % interval": "" if ends is None else f"{100 * ends[0]:+.1f} to {100 * ends[1]:+.1f}",
        "p": "" if gain is None else _p(gain.wilcoxon_p),
        "McNemar": NONE if gain is None else f"{row.better} / {row.worse}",
        "oracle": _percent(row.oracle),
        "paper: ICL": f"{row.paper_plain.accuracy:.1f}" if row.paper_plain else "",
        "paper: D-T": f"{row.paper_thinking.accuracy:.1f}" if row.paper_thinking else "",
        "table": str(row.paper_table or ""),
    }


def values(row: TableRow) -> dict[str, Any]:
    """The row's numbers, as `rounded`; accuracies are in [0, 1]."""
    gain = row.gain
    low, high = (None if gain is None else gain.ci95) or (None, None)
    numbers = {
        **row.arm.values(),
        "task": row.name,
        "is_mean": row.is_mean,
        "tasks": row.tasks,
        "tasks_known": row.known,
        "seeds": len(row.scores),
        "shots": _common({each.result.setting.shots for each in row.of_tasks}),
        "limit": _common({each.result.setting.limit for each in row.of_tasks}),
        "n": row.inputs,
        "chosen_on_dev": row.on_dev,
        **_range("iteration", row.iterations),
        **_range("eta", row.etas),
        **_moments("icl", row.plain),
        **_moments("thinking", row.thinking),
        **_moments("difference", None if gain is None else gain.spread),
        "difference_low": low,
        "difference_high": high,
        "wilcoxon_p": None if gain is None else gain.wilcoxon_p,
        "mcnemar_better": None if gain is None else row.better,
        "mcnemar_worse": None if gain is None else row.worse,
        **_moments("oracle", row.oracle),
        "paper_table": row.paper_table,
        "paper_icl": _share(row.paper_plain),
        "paper_thinking": _share(row.paper_thinking),
    }
    return {name: rounded(value) for name, value in numbers.items()}


def rounded(value: Any) -> Any:
    """A number with six significant digits, more than any count of inputs supports; other values unchanged.

    Digits beyond the twelfth decimal are rounding errors of floating-point sums.
    """
    return round(float(f"{value:.6g}"), 12) if isinstance(value, float) else value


def _name(row: TableRow) -> str:
    if not row.is_mean:
        return row.name
    counted = f"{row.tasks}" if row.tasks == row.known else f"{row.tasks} of {row.known}"
    return f"{row.name} (mean of {counted})"


def _percent(spread: Spread) -> str:
    return f"{100 * spread.mean:.1f}" + ("" if spread.sd is None else f" ± {100 * spread.sd:.1f}")


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _middle(numbers: Sequence[float]) -> str:
    """The lower median (always one of the numbers) and the range if they differ; two numbers are both listed."""
    low, high = min(numbers), max(numbers)
    if low == high:
        return f"{low:g}"
    return f"{numbers[0]:g}, {numbers[1]:g}" if len(numbers) == 2 else f"{_median(numbers):g} ({low:g} to {high:g})"


def _median(numbers: Sequence[float]) -> float | None:
    """The lower median; None for two different numbers, which have no middle."""
    return statistics.median_low(numbers) if len(numbers) != 2 or numbers[0] == numbers[1] else None


def _common(values: Collection[int | None]) -> int | None:
    """The common value; None for several values."""
    return next(iter(values)) if len(values) == 1 else None


def _moments(name: str, spread: Spread | None) -> dict[str, float | None]:
    mean, sd = (None, None) if spread is None else (spread.mean, spread.sd)
    return {f"{name}_mean": mean, f"{name}_sd": sd}


def _range(name: str, numbers: Sequence[float]) -> dict[str, float | None]:
    if not numbers:
        return dict.fromkeys((f"{name}_median", f"{name}_min", f"{name}_max"))
    return {f"{name}_median": _median(numbers), f"{name}_min": min(numbers), f"{name}_max": max(numbers)}


def _share(cell: PublishedFigure | None) -> float | None:
    return cell.accuracy / 100 if cell else None
