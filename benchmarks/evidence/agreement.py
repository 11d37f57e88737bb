"""What was run twice, in another dtype or on another device: how far the two are apart."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .cells import PAPER
from .discrimination import difference
from .findings import with_interval
from .load import Scores
from .measures import Bools, Floats, predicted

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
    tasks = both["task"].nunique()
    return (
        f"{len(both)} results of {tasks} tasks, on test and on dev rows, were run in float32 as well: "
        f"{100 * differing.mean():.1f} % of the labels differ. Against float32 the accuracy of a result changes by "
        f"{gaps.mean():+.2f} points in the mean and by at most {gaps.abs().max():.1f}, its mean log-probability of the "
        f"true label by at most {nats:.3f} nats."
    )


def device_sentence(gpu: pd.DataFrame, processor: pd.DataFrame) -> str:
    """How far the results of a GPU and of a processor are apart; empty if none was made on both."""
    same, said = ["task", "seed", "eta", "t", "part", "rows", "demonstrations"], ["labels", "scores"]
    first, second = (rows[[*same, *said]].astype({"task": str}) for rows in (gpu, processor))
    both = first.merge(second, on=same, suffixes=("", "_processor"))
    if both.empty:
        return ""
    differing = np.concatenate([a != b for a, b in zip(both["labels"], both["labels_processor"], strict=True)])
    pairs = zip(both["scores"], both["scores_processor"], strict=True)
    nats = max(float(np.abs(one.logs - other.logs).max()) for one, other in pairs)
    return (
        f"{len(both)} results, all in float32, were made on a GPU and on a processor: of {len(differing):,} labels "
        f"{differing.sum()} differ, and log-probabilities by at most {nats:.1e} nats."
    )


def changes_sentence(grid: pd.DataFrame, own: pd.DataFrame, t: int) -> str:
    """How far accuracy at T = 1, and its change from there to T, differ between the dtypes in the paper's setting.

    `own` has that setting in float32, on some of the grid's test rows; empty if nothing was run in both.
    """
    positions, eta = PAPER
    ours, grids = (_test_rows(rows, eta, t) for rows in (own, grid[grid["setting"] == positions]))
    pairs = [pair for pair in ours if pair in grids]
    if not pairs:
        return ""
    firsts, steps = list[tuple[Floats, Floats]](), list[tuple[Floats, Floats]]()
    for task in dict.fromkeys(task for task, *_ in pairs):
        both = np.array([_both_right(ours[pair], grids[pair]) for pair in pairs if pair[0] == task], dtype=np.float64)
        float32, other = both[:, 0], both[:, 1]  # [seeds, T, rows]
        firsts.append((float32[:, 0], other[:, 0]))
        steps.append((float32[:, 1] - float32[:, 0], other[:, 1] - other[:, 0]))
    first, step = difference(firsts), difference(steps)
    return (
        f"The grid's dtype minus float32, on the same rows of the paper's setting ({len(pairs)} task-seed pairs): "
        f"accuracy at T = 1 {with_interval(first)}, its change from T = 1 to T = {t} {with_interval(step)}."
    )


def _test_rows(rows: pd.DataFrame, eta: float, t: int) -> dict[tuple[str, int, str], list[Scores]]:
    """The scores of the test rows at T = 1 and at T, by task, seed and the digest of the demonstrations."""
    test = rows[(rows["part"] == "test") & (rows["eta"] == eta)]
    of_jobs = {
        (str(task), int(seed), digest): job.set_index("t")["scores"]
        for (task, seed, digest), job in test.groupby(["task", "seed", "demonstrations"], observed=True)
    }
    return {pair: [scores[1], scores[t]] for pair, scores in of_jobs.items() if {1, t} <= set(scores.index)}


def _both_right(ours: list[Scores], grids: list[Scores]) -> list[list[Bools]]:
    """Which of our rows are labelled correctly, by ours and by the grid's scores, at T = 1 and at T [2, 2, rows]."""
    places = {where: place for place, where in enumerate(grids[0].where)}
    same = [places[where] for where in ours[0].where]
    return [
        [predicted(each.logs) == each.gold for each in ours],
        [(predicted(each.logs) == each.gold)[same] for each in grids],
    ]
