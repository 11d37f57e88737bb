"""What was run twice, in another dtype or on another device: how far the two are apart."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .cells import PAPER
from .discrimination import difference
from .findings import counted, names, with_interval
from .load import Scores
from .measures import Floats, predicted

_CELL = ["setting", "task", "seed", "eta", "t", "part"]


def dtype_sentence(grid: pd.DataFrame, float32: pd.DataFrame) -> str:
    """How far predicted labels and accuracies of the same cells are apart; empty if no cell was run in both dtypes."""
    if grid.empty or float32.empty:
        return ""
    columns = [*_CELL, "labels", "accuracy", "true"]
    text = dict.fromkeys(("setting", "task"), str)  # categories of the whole and of a part differ
    both = grid[columns].astype(text).merge(float32[columns].astype(text), on=_CELL, suffixes=("", "_float32"))
    if both.empty:
        return ""
    differing = np.concatenate([a != b for a, b in zip(both["labels"], both["labels_float32"], strict=True)])
    gaps = 100 * (both["accuracy"] - both["accuracy_float32"])
    nats = (both["true"] - both["true_float32"]).abs().max()
    seeds, ends = sorted(set(both["seed"])), (both["t"].min(), both["t"].max())
    first, last = (gaps[both["t"] == t].mean() for t in ends)
    return (
        f"{len(both)} results ({names(sorted(set(both['task'])))}, {'seeds' if len(seeds) > 1 else 'seed'} "
        f"{', '.join(map(str, seeds))}, every T, test and dev rows) were run in float32 as well: "
        f"{100 * differing.mean():.1f} % of the labels differ. Against float32 the accuracy of these changes by "
        f"{gaps.mean():+.2f} points in the mean ({first:+.2f} at T = {ends[0]}, {last:+.2f} at T = {ends[1]}) and by "
        f"at most {gaps.abs().max():.1f}, the mean log-probability of the true label by at most {nats:.3f} nats."
    )


def device_sentence(gpu: pd.DataFrame, processor: pd.DataFrame, t: int) -> str:
    """How far labels and log-probabilities of a GPU and of a processor are apart, on the rows that both scored."""
    both = _on_the_same_rows(gpu, processor, t)
    pairs = [pair for of_gpu, of_processor in both.values() for pair in zip(of_gpu, of_processor, strict=True)]
    if not pairs:
        return ""
    differing = np.concatenate([predicted(first.logs) != predicted(second.logs) for first, second in pairs])
    nats = max(float(np.abs(first.logs - second.logs).max()) for first, second in pairs)
    tasks = len({task for task, *_ in both})
    return (
        f"{len(pairs)} results of {counted(tasks, 'task')} in float32, at T = 1 and T = {t}, were made on a GPU and on "
        f"a processor: of {len(differing):,} labels {differing.sum()} differ, and log-probabilities by at most "
        f"{nats:.1e} nats."
    )


def changes_sentence(grid: pd.DataFrame, float32: pd.DataFrame, t: int) -> str:
    """How far accuracy at T = 1, and its change from there to T, differ between the dtypes in the paper's setting."""
    both = _on_the_same_rows(grid[grid["setting"] == PAPER[0]], float32, t)
    if not both:
        return ""
    firsts, steps = list[tuple[Floats, Floats]](), list[tuple[Floats, Floats]]()
    for task in dict.fromkeys(task for task, *_ in both):
        right = np.array([[_right(side) for side in sides] for pair, sides in both.items() if pair[0] == task])
        other, exact = right[:, 0], right[:, 1]  # [seeds, T, rows]
        firsts.append((exact[:, 0], other[:, 0]))
        steps.append((exact[:, 1] - exact[:, 0], other[:, 1] - other[:, 0]))
    first, step = difference(firsts), difference(steps)
    return (
        f"Over all tasks, the grid's dtype minus float32 on the same rows of the paper's setting ({len(both)} "
        f"task-seed pairs): accuracy at T = 1 {with_interval(first)}, its change from T = 1 to T = {t} "
        f"{with_interval(step)}."
    )


def _on_the_same_rows(
    first: pd.DataFrame, second: pd.DataFrame, t: int
) -> dict[tuple[str, int, str], tuple[list[Scores], list[Scores]]]:
    """The scores of both at T = 1 and at T with the paper's eta, on the test rows that both have.

    By task, seed and the digest of the demonstrations.
    """
    jobs, others = (_test_rows(rows, t) for rows in (first, second))
    found = {}
    for pair in (pair for pair in jobs if pair in others):
        known = set(others[pair][0].where)
        where = [each for each in jobs[pair][0].where if each in known]
        if where:
            found[pair] = ([each.at(where) for each in jobs[pair]], [each.at(where) for each in others[pair]])
    return found


def _test_rows(rows: pd.DataFrame, t: int) -> dict[tuple[str, int, str], list[Scores]]:
    test = rows[(rows["part"] == "test") & (rows["eta"] == PAPER[1])]
    of_jobs = {
        (str(task), int(seed), digest): job.set_index("t")["scores"]
        for (task, seed, digest), job in test.groupby(["task", "seed", "demonstrations"], observed=True)
    }
    return {pair: [scores[1], scores[t]] for pair, scores in of_jobs.items() if {1, t} <= set(scores.index)}


def _right(at: list[Scores]) -> Floats:
    """1.0 for every row that is labelled correctly, and 0.0 for others [T, rows]."""
    return np.array([predicted(each.logs) == each.gold for each in at], dtype=np.float64)
