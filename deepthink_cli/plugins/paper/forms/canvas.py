"""What the forms share: panels in a grid, and the accuracies that are compared."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.report.figures import COLOURS, COLUMN, GREY, LEGEND, PAGE
from deepthink_cli.report.job_results import JobResults, Seed, different_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ICL, OURS = "ICL (T = 1)", "Deep-Thinking"
LOOKS: Mapping[str, Mapping[str, Any]] = {ICL: {"color": COLOURS[0]}, OURS: {"color": COLOURS[1]}}
WIDTH, HEIGHT = 1.7, 1.75  # inches of a panel


def panels_of(number: int, width: float = WIDTH, abreast: int = 4, extra: float = 0.6) -> tuple[Figure, Iterator[Axes]]:
    """A figure with a grid of panels, at most as wide as a page."""
    from matplotlib.figure import Figure

    columns = min(number, abreast)
    rows = -(-number // columns)
    size = (min(PAGE, max(COLUMN, columns * width)), rows * HEIGHT + extra)
    figure = Figure(figsize=size, layout="constrained")
    return figure, (figure.add_subplot(rows, columns, place) for place in range(1, number + 1))


def titled(axes: Axes, *lines: str) -> None:
    """Set the title of a panel, broken to its width."""
    axes.set_title("\n".join(textwrap.fill(line, 30, break_on_hyphens=False) for line in lines if line), pad=3)


def legend(figure: Figure, handles: Sequence[Any], below: str) -> None:
    """The legend above the panels, and what points and bands mean below them."""
    figure.legend(handles=list(handles), ncols=len(handles), **LEGEND)
    figure.supxlabel(textwrap.fill(below, int(18 * figure.get_size_inches()[0])), fontsize=7, color=GREY)


def short(model: str) -> str:
    """A model's name without its owner or folder."""
    return PurePath(model).name


@dataclass(frozen=True)
class Pair:
    """One job: the accuracy of its baseline and at T = `iteration`, in percent."""

    model: str
    task: str
    seed: Seed
    shots: int
    iteration: int
    plain: float
    thinking: float


def pairs(jobs: Sequence[JobResults], iteration: int | None) -> list[Pair]:
    """The jobs with a baseline and test rows at the T of the form, or at the last T; raises InputError without any.

    Among jobs with the same demonstrations in the same order, only the first counts.
    """
    last = max((t for job in jobs for t in job.test), default=1)
    wanted, found = min(iteration or last, last), list[Pair]()
    scored = [job for job in jobs if wanted in job.test]
    for job in different_seeds(scored, lambda job: (job.arm, job.task, job.seed.order is None, job.demonstrations)):
        compared = job.compared(wanted)
        if compared.plain is not None:
            found.append(
                Pair(
                    model=job.arm.model,
                    task=job.task,
                    seed=job.seed,
                    shots=compared.result.setting.shots,
                    iteration=wanted,
                    plain=100 * compared.plain,
                    thinking=100 * compared.thinking,
                )
            )
    if not found:
        raise InputError(f"no job has rows at T = 1 and at T = {wanted} yet; continue the study")
    return found


def distinct(values: Sequence[str]) -> list[str]:
    """The different values, in their order."""
    return list(dict.fromkeys(values))
