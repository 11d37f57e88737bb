"""Cells of the grid that were run in float32 too: how far the grid's dtype is from it."""

from __future__ import annotations

import numpy as np
import pandas as pd

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
