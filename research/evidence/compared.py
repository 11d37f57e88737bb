"""The lines of docs/evidence.md: methods beside one reading of the same demonstrations, on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from deepthink_cli.calibration.registry import HEAD

from .load import Cell, Evidence, Line
from .measures import MEASURES, Floats, after_batch, without_bias
from .runs import BY_DEV
from .statistics import Interval, over_seeds_and_rows, over_tasks

CENTROID = "centroid"
PAPER, PAPER_FIVE = "thinking, the paper's setting, T by dev rows", "thinking, the paper's setting, T = 5"
RESTARTED = "thinking, restarted, T and eta by dev rows"
LARGE_STEP = "thinking, a large step (eta 0.1, T = 12)"
TECHNIQUES = {
    "ensemble-4": "four orders, mean log p",
    "composed": "demonstrations read apart",
    "ct-kv": "the memory is trained by gradients",
}
CHOSEN = f"`{BY_DEV}` demonstrations"
BATCH, FITTED = "batch calibration (no labels)", "a bias fitted on dev rows"
NEAREST, OF_HEAD = "nearest mean hidden state of dev rows", "the head on hidden states of dev rows"
SHOWN = ("accuracy", "matched", "after a fitted bias", "pairs")
PRIMARY = ("accuracy", "pairs")  # the measures that decide the questions of the page
FAMILIES = (("sst2", "sst5", "mr"), ("agnews",), ("trec",))  # tasks that share sentences are one family
TS, ETA, ETAS = (2, 5, 12), 0.01, (0.01, 0.1)


@dataclass(frozen=True)
class Difference:
    """Means over tasks before and after, and the mean of the difference with its 95 % interval and p.

    `tasks` has the difference on each task.
    """

    before: float
    after: float
    mean: float
    interval: Interval
    p: float
    tasks: Mapping[str, float] = field(default_factory=dict)

    @property
    def of_families(self) -> float:
        """The mean over families of tasks of their means."""
        found = [[self.tasks[task] for task in family if task in self.tasks] for family in FAMILIES]
        return float(np.mean([np.mean(family) for family in found if family]))


@dataclass(frozen=True, eq=False)
class Compared:
    """A method and what it is compared with, in the cells of both.

    `thinks` is true of several readings, `more_labels` of a method that uses labels of other rows than its
    demonstrations, `corrects` of a correction of the scores of T = 1, after which no bias is fitted.
    """

    name: str
    before: Line
    after: Line
    thinks: bool = False
    more_labels: bool = False
    corrects: bool = False

    @property
    def cells(self) -> list[Cell]:
        """The tasks and seeds of both."""
        return [cell for cell in self.before if cell in self.after]

    @property
    def unchanged(self) -> int:
        """In how many of them T = 1 was chosen, so that nothing differs."""
        return sum(self.before[cell] is self.after[cell] for cell in self.cells)

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """By measure."""
        return {name: self.by(name) for name in SHOWN}

    def by(self, measure: str) -> Difference:
        """The difference by one measure; interval and p are Student's over the seeds and test rows of each task.

        Biases and constants count as given: what another draw of rows would change in them is left out.
        """
        sides: dict[str, list[tuple[Floats, Floats]]] = {}
        for task, seed in self.cells:
            before, after = self.before[task, seed], self.after[task, seed]
            assert np.array_equal(before["test"].gold, after["test"].gold)
            values = MEASURES[measure](before, after)
            sides.setdefault(task, []).append((np.asarray(values[0], float), np.asarray(values[1], float)))
        of_tasks = {task: np.stack([np.stack(pair) for pair in pairs], axis=1) for task, pairs in sides.items()}
        steps = {task: after - before for task, (before, after) in of_tasks.items()}
        first, last = (float(np.mean([pair[side].mean() for pair in of_tasks.values()])) for side in (0, 1))
        interval, p = over_tasks(last - first, [over_seeds_and_rows(step) for step in steps.values()])
        return Difference(first, last, last - first, interval, p, {task: step.mean() for task, step in steps.items()})


def once(evidence: Evidence) -> Line:
    """One reading of the random demonstrations: plain in-context learning."""
    return evidence.line("thinking", t=1)


def by_dev(options: Sequence[Line]) -> Line:
    """In every cell that all options have, the one that gives most dev rows their label; of a tie the first one."""
    cells = [cell for cell in options[0] if all(cell in option for option in options)]
    return {
        cell: max((option[cell] for option in options), key=lambda parts: parts["dev"].right.sum()) for cell in cells
    }


def lines(evidence: Evidence) -> list[Compared]:
    """Every line of the page as far as it was run, in its order."""
    first = once(evidence)
    paper = [first, *(evidence.line("thinking", t=t) for t in TS)]
    restarted = [first, *(evidence.line("restarted", t=t, eta=eta) for t, eta in product(TS, ETAS))]
    corrections = {
        BATCH: {cell: {part: after_batch(scores) for part, scores in parts.items()} for cell, parts in first.items()},
        FITTED: {cell: {"test": without_bias(parts)} for cell, parts in first.items()},
        NEAREST: evidence.heads.get(CENTROID, {}),
        OF_HEAD: evidence.heads.get(HEAD, {}),
    }
    found = [
        Compared(PAPER, first, by_dev(paper), thinks=True, more_labels=True),
        Compared(PAPER_FIVE, first, evidence.line("thinking", t=5), thinks=True),
        Compared(RESTARTED, first, by_dev(restarted), thinks=True, more_labels=True),
        Compared(LARGE_STEP, first, evidence.line("large", t=12), thinks=True),
        *(Compared(technique_line(name), first, technique(evidence, name)) for name in TECHNIQUES),
        Compared(CHOSEN, first, evidence.line("valid", t=1), more_labels=True),
        *(Compared(name, first, line, more_labels=name != BATCH, corrects=True) for name, line in corrections.items()),
    ]
    return [each for each in found if each.cells]


def technique_line(name: str) -> str:
    """The name of a technique's line."""
    return f"`{name}`: {TECHNIQUES[name]}"


def technique(evidence: Evidence, name: str) -> Line:
    """The scores of a technique."""
    return evidence.line("ct-kv" if name == "ct-kv" else "techniques", technique=name)


def adjusted(found: Sequence[Compared]) -> dict[tuple[str, str], float]:
    """Holm's p-value of each comparison by each primary measure, over the comparisons that are alike.

    Those of thinking are alike, and those of other methods; every measure is corrected apart.
    """
    p_values: dict[tuple[str, str], float] = {}
    for thinks, measure in product((True, False), PRIMARY):
        alike = [each for each in found if each.thinks is thinks]
        of_alike = holm([each.differences[measure].p for each in alike])
        p_values |= {(each.name, measure): p for each, p in zip(alike, of_alike, strict=True)}
    return p_values


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: the k-th smallest of m times m - k + 1, never below one before."""
    order = np.argsort(p_values)
    steps = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    found = np.empty(len(p_values))
    found[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return [float(value) for value in found]
