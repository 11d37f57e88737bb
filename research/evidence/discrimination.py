"""Does a change of the memory tell labels apart better, or does it move their prior? Each measure answers in part.

A comparison has the scores of the same test rows before (as a rule T = 1) and after, and those of dev rows:

- accuracy by the model's scores;
- *matched*: before, one constant is added to the scores of each label, such that every label is given as often as
  after. What remains of the difference is not a difference of how often labels are given;
- *fitted*: a bias of each label, fitted on the dev rows, is taken off on both sides (`--calibrate fitted`);
- *batch*: both sides after batch calibration;
- *pairs*: the area under the ROC curve between two labels, mean over pairs of labels. No constants change it;
- *AUC*: the area under the ROC curve of p(label), one label against the rest, mean over labels. A constant factor on
  the odds of a label does not change it;
- log p: the mean log-probability of the true label in nats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from deepthink_cli.calibration.registry import CALIBRATIONS

from . import statistics
from .cells import choices
from .load import Evidence, Scores
from .measures import Bools, Floats, Ints, batch_calibrated, predicted
from .statistics import Interval

MEASURES = ("accuracy", "matched", "fitted", "batch", "pairs", "AUC", "log p")
NEEDS_DEV = ("fitted",)
NEEDS_EVERY_LABEL = ("batch", "log p")  # a label that is never given has a log-probability of minus infinity
PAPER_BY_DEV, PAPER_FIVE = "thinking, the paper's setting, T by dev rows", "thinking, the paper's setting, T = 5"
CONTINUED_TUNED, RESTARTED_TUNED = "thinking, T and eta by dev rows", "thinking, restarted, T and eta by dev rows"
MOMENTUM = "thinking, momentum 0.9, T by dev rows"  # the authors' code, eta 0.01
LARGE_STEP = "thinking, a large step (eta 0.1, T = 12)"
PRIMARY = ("accuracy", "pairs")  # of each question of the page of evidence, the measure that decides it
FAMILIES = (("sst2", "sst5", "mr"), ("agnews",), ("trec",))  # tasks that share sentences are one family


@dataclass(frozen=True, eq=False)
class Pair:
    """One task and seed: scores of the test rows before and after, and of the dev rows, if they were scored.

    `trained` are scores after that the labels of the dev rows made: no bias is fitted on these rows again.
    """

    task: str
    seed: int
    before: Scores
    after: Scores
    dev_before: Scores | None
    dev_after: Scores | None
    trained: bool = False


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
    """What is compared with T = 1, or with what its name says: its pairs, the measures, and whether it used dev labels.

    `chosen_by` is how many more labels the demonstrations were chosen by; `thinks` is true of several readings.
    """

    name: str
    by_dev: bool
    pairs: Sequence[Pair]
    chosen_by: int = 0
    thinks: bool = False

    @property
    def labels(self) -> int:
        """How many labels beyond those of the demonstrations were used whatever is corrected."""
        dev = self.pairs[0].dev_before
        return self.chosen_by + (0 if dev is None or not self.by_dev else len(dev.gold))

    @property
    def cells(self) -> list[tuple[str, int]]:
        """The tasks and seeds that are compared."""
        return [(pair.task, pair.seed) for pair in self.pairs]

    @property
    def unchanged(self) -> int:
        """In how many of them T = 1 was chosen, so that nothing differs."""
        return sum(pair.before is pair.after for pair in self.pairs)

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Those of the measures that its rows allow, by name."""
        fitted = all(pair.dev_before and (pair.dev_after or pair.trained) for pair in self.pairs)
        scored = [len(_scored(pair)) for pair in self.pairs]
        every = all(number == len(pair.after.labels) for number, pair in zip(scored, self.pairs, strict=True))
        unknown = {
            *(() if fitted else NEEDS_DEV),
            *(() if every else NEEDS_EVERY_LABEL),
            *(() if min(scored) > 1 else _AREAS),
        }
        return {name: compare(self.pairs, name) for name in MEASURES if name not in unknown}


def matched_labels(logs: Floats, counts: Ints) -> Ints:
    """The labels (n,) of scores plus one constant for each label, such that each is given `counts` times.

    They are the assignment of labels to rows with the largest sum of scores: its dual variables are the constants.
    """
    columns = np.repeat(np.arange(len(counts)), counts)
    _, places = linear_sum_assignment(logs[:, columns], maximize=True)
    return np.asarray(columns[places], dtype=np.int64)


def areas(logs: Floats, gold: Ints, labels: Sequence[int]) -> Floats:
    """The macro area under the ROC curve over these labels, as the mean of a value for each row [n].

    Labels that are true of no row, or of all, are left out.
    """
    probabilities = np.exp(logs)
    known = [label for label in labels if 0 < (gold == label).sum() < len(gold)]
    return np.mean([_area(probabilities[:, label], gold == label) for label in known], axis=0)


def pairwise_areas(logs: Floats, gold: Ints, labels: Sequence[int]) -> Floats:
    """The area between two labels, mean over the pairs of these, as the mean of a value for each row [n].

    Rows of neither label have the area itself, and pairs with a label that is true of no row are left out.
    """
    found = []
    for one, other in combinations([label for label in labels if (gold == label).any()], 2):
        rows = (gold == one) | (gold == other)
        inside = _area(logs[rows, one] - logs[rows, other], gold[rows] == one)
        values = np.full(len(gold), inside.mean())
        values[rows] += (inside - inside.mean()) * len(gold) / rows.sum()
        found.append(values)
    return np.mean(found, axis=0)


def _area(scores: Floats, true: Bools) -> Floats:
    """How often a true row has the higher score, ties a half: the area plus what each row changes in it.

    The variance of their mean is that of DeLong et al. (1988), but for a factor of n / (n - 1) of each kind of rows.
    """
    above = (scores[true][:, None] > scores[~true]) + 0.5 * (scores[true][:, None] == scores[~true])
    area, values = above.mean(), np.empty(len(scores))
    values[true] = area + (above.mean(axis=1) - area) / true.mean()
    values[~true] = area + (above.mean(axis=0) - area) / (1 - true.mean())
    return values


def _accuracy(scores: Scores) -> Bools:
    return predicted(scores.logs) == scores.gold


def _matched(before: Scores, after: Scores) -> Bools:
    counts = np.bincount(predicted(after.logs), minlength=len(after.labels))
    return matched_labels(before.logs, counts) == before.gold


def after_bias(scores: Scores, dev: Scores) -> Scores:
    """Scores without a bias of each label, fitted on dev rows."""
    corrected = CALIBRATIONS["fitted"].corrected(scores.logs, dev.logs, dev.gold.tolist())
    return replace(scores, logs=np.asarray(corrected))


def _fitted(scores: Scores, dev: Scores) -> Bools:
    return _accuracy(after_bias(scores, dev))


def _batch(scores: Scores) -> Bools:
    return predicted(batch_calibrated(scores.logs)) == scores.gold


def _true(scores: Scores) -> Floats:
    found: Floats = scores.logs[np.arange(len(scores.gold)), scores.gold]
    return found


def _scored(pair: Pair) -> list[int]:
    """The labels that have a score on both sides, in every row."""
    known = np.isfinite(pair.before.logs).all(axis=0) & np.isfinite(pair.after.logs).all(axis=0)
    return [int(label) for label in np.flatnonzero(known)]


def _sides(name: str, pair: Pair) -> tuple[Floats, Floats]:
    """The measure before and after, each as the mean of a value for each row [n].

    Areas are over the labels that both sides score.
    """
    values: tuple[Bools | Floats, Bools | Floats]
    if name == "matched":
        values = _matched(pair.before, pair.after), _accuracy(pair.after)
    elif name == "fitted":
        assert pair.dev_before is not None
        if pair.trained:
            after = _accuracy(pair.after)
        else:
            assert pair.dev_after is not None
            after = _fitted(pair.after, pair.dev_after)
        values = _fitted(pair.before, pair.dev_before), after
    elif name in _AREAS:
        area, labels = _AREAS[name], _scored(pair)
        values = (
            area(pair.before.logs, pair.before.gold, labels),
            area(pair.after.logs, pair.after.gold, labels),
        )
    else:
        measure = _BY_SIDE[name]
        values = measure(pair.before), measure(pair.after)
    return np.asarray(values[0], dtype=np.float64), np.asarray(values[1], dtype=np.float64)


_BY_SIDE: dict[str, Callable[[Scores], Bools | Floats]] = {
    "accuracy": _accuracy,
    "batch": _batch,
    "log p": _true,
}
_AREAS: dict[str, Callable[[Floats, Ints, Sequence[int]], Floats]] = {"AUC": areas, "pairs": pairwise_areas}


def compare(pairs: Sequence[Pair], name: str) -> Difference:
    """A measure before and after; those of `NEEDS_DEV` need pairs whose dev rows were scored.

    Interval and p are Student's over the seeds and the test rows of each task (`over_seeds_and_rows`). Biases and
    constants count as given: what another draw of rows would change in them is left out.
    """
    sides = {}
    for task in dict.fromkeys(pair.task for pair in pairs):
        of_task = [pair for pair in pairs if pair.task == task]
        assert all(np.array_equal(pair.before.gold, of_task[0].before.gold) for pair in of_task)
        before, after = np.stack([_sides(name, pair) for pair in of_task], axis=1)
        sides[task] = before, after
    tasks = {task: float((after - before).mean()) for task, (before, after) in sides.items()}
    return replace(difference(list(sides.values())), tasks=tasks)


def difference(sides: Sequence[tuple[Floats, Floats]]) -> Difference:
    """The mean over tasks of values before and after, [seeds, rows] each."""
    first, last = (float(np.mean([side[place].mean() for side in sides])) for place in (0, 1))
    variances = [statistics.over_seeds_and_rows(after - before) for before, after in sides]
    return Difference(first, last, last - first, *statistics.over_tasks(last - first, variances))


def adjusted(found: Sequence[Compared]) -> dict[tuple[str, str], float]:
    """Holm's p-value of each comparison by each primary measure, over the comparisons that are alike.

    Those of thinking are alike, and those of other methods; every measure is corrected apart.
    """
    p_values: dict[tuple[str, str], float] = {}
    for thinks, measure in product((True, False), PRIMARY):
        alike = [each for each in found if each.thinks is thinks and measure in each.differences]
        of_alike = holm([each.differences[measure].p for each in alike])
        p_values |= {(each.name, measure): p for each, p in zip(alike, of_alike, strict=True)}
    return p_values


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: the k-th smallest of m times m - k + 1, never below one before."""
    order = np.argsort(p_values)
    steps = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return [float(value) for value in adjusted]


def comparisons(evidence: Evidence) -> Iterator[Compared]:
    """Thinking as the paper does it, at the T that dev rows choose and at T = 5, and in other settings."""
    grid = evidence.grid
    found = [
        Compared(PAPER_BY_DEV, True, chosen_pairs(grid, "continued", [0.01]), thinks=True),
        Compared(PAPER_FIVE, False, _fixed(grid, "continued", 0.01, 5), thinks=True),
        Compared(CONTINUED_TUNED, True, chosen_pairs(grid, "continued", [0.01, 0.1]), thinks=True),
        Compared(RESTARTED_TUNED, True, chosen_pairs(grid, "restarted", [0.01, 0.1]), thinks=True),
        Compared(MOMENTUM, True, chosen_pairs(grid, "official", [0.01]), thinks=True),
        Compared(LARGE_STEP, False, _fixed(grid, "continued", 0.1, 12), thinks=True),
    ]
    return (each for each in found if each.pairs)


def chosen_pairs(grid: pd.DataFrame, setting: str, etas: Sequence[float]) -> list[Pair]:
    """The tasks and seeds of a setting, each at the T and eta that its dev rows choose."""
    rows = grid[grid["setting"] == setting]
    found = []
    for _, choice in choices(rows, etas).iterrows():
        found += pairs_at(
            rows[(rows["task"] == choice["task"]) & (rows["seed"] == choice["seed"])], *choice[["eta", "t"]]
        )
    return found


def _fixed(grid: pd.DataFrame, setting: str, eta: float, t: int) -> list[Pair]:
    return pairs_at(grid[grid["setting"] == setting], eta, t)


def without_dev(before: Iterable[pd.Series], after: Iterable[pd.Series]) -> list[Pair]:
    """The test rows of the same tasks and seeds, one after the other."""
    return [
        Pair(str(first["task"]), int(first["seed"]), first["scores"], last["scores"], None, None)
        for first, last in zip(before, after, strict=True)
    ]


def after_batch(scores: Scores) -> Scores:
    """Scores after batch calibration."""
    return replace(scores, logs=batch_calibrated(scores.logs))


def pairs_at(rows: pd.DataFrame, eta: float, t: int) -> list[Pair]:
    """The tasks and seeds that have test rows at T = 1 and at this T, with this eta."""
    found = []
    for (task, seed), job in rows[rows["eta"] == eta].groupby(["task", "seed"], observed=True):
        scores = {(row["part"], row["t"]): row["scores"] for _, row in job.iterrows()}
        if ("test", 1) in scores and ("test", t) in scores:
            sides = (scores["test", 1], scores["test", t], scores.get(("dev", 1)), scores.get(("dev", t)))
            found.append(Pair(str(task), int(seed), *sides))
    return found


def beside(rows: pd.DataFrame, others: pd.DataFrame) -> list[Pair]:
    """Rows beside others on the same test rows; each side has one T.

    Dev rows, which are none of the demonstrations, may differ: each side's bias is fitted on its own.
    """
    key = ["task", "seed", "part", "same"]
    sides = [side.assign(same=side["rows"].where(side["part"] == "test", "")) for side in (rows, others)]
    both = sides[0].merge(sides[1].drop_duplicates(key), on=key, suffixes=("_after", ""))
    found = []
    for (task, seed), job in both.groupby(["task", "seed"], observed=True):
        scores = {row["part"]: (row["scores"], row["scores_after"]) for _, row in job.iterrows()}
        if "test" in scores:
            found.append(Pair(str(task), int(seed), *scores["test"], *scores.get("dev", (None, None))))
    return found
