"""The two public objections: repeated demonstrations at T = 1, and demonstrations with exchanged label words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .cells import PAPER, Comparison
from .measures import Bools, batch_calibrated, predicted


@dataclass(frozen=True)
class Repeats:
    """Repeated demonstrations at T = 1 beside thinking with one setting, over the seeds that have both.

    `repeating` compares them with T = 1 once, `thinking` compares T > 1 with T = 1, and `between` the repetition with
    thinking, which `calibrated` does after batch calibration. `agreement` compares how many labels of T = 1, and of
    thinking, are those of the repetition. `t` is the iteration compared: the number of repetitions, or the nearest in
    the grid.
    """

    task: str
    times: int
    setting: str
    eta: float
    t: int
    seeds: tuple[int, ...]
    repeating: Comparison
    thinking: Comparison
    between: Comparison
    calibrated: Comparison
    agreement: Comparison


def repeats(control: pd.DataFrame, grid: pd.DataFrame) -> Iterator[Repeats]:
    """Every task, number of repetitions and setting with a common seed and the same test rows.

    The paper's setting, and each with its largest eta, because a small one leaves T = 2 nearly at T = 1.
    """
    largest = grid.groupby("setting", observed=True)["eta"].transform("max")
    of_paper = (grid["setting"] == PAPER[0]) & (grid["eta"] == PAPER[1])
    test = grid[(grid["part"] == "test") & ((grid["eta"] == largest) | of_paper)]
    firsts = {(row["task"], row["seed"]): row for _, row in test[test["t"] == 1].iterrows()}
    for (task, setting, eta), thought in test[test["t"] > 1].groupby(["task", "setting", "eta"], observed=True):
        for times, repeated in _by_times(control[control["task"] == task], firsts):
            t = min(set(thought["t"]), key=lambda each: (abs(each - times), each))
            later = thought[thought["t"] == t].set_index("seed")
            triples = [
                (firsts[task, row["seed"]], row, later.loc[row["seed"]])
                for _, row in repeated.iterrows()
                if row["seed"] in later.index and row["rows"] == later.loc[row["seed"]]["rows"]
            ]
            if triples:
                yield _repeats(task, times, setting, eta, t, triples)


def _by_times(control: pd.DataFrame, firsts: dict[tuple[str, int], pd.Series]) -> Iterator[tuple[int, pd.DataFrame]]:
    """The control's rows by the number of repetitions, for the seeds of which T = 1 without repetition is known."""
    rows = [
        (firsts[row["task"], row["seed"]], row) for _, row in control.iterrows() if (row["task"], row["seed"]) in firsts
    ]
    times = [round(row["shots"] / first["shots"]) for first, row in rows]
    for number in sorted(set(times)):
        yield number, pd.DataFrame([row for (_, row), each in zip(rows, times, strict=True) if each == number])


def _repeats(
    task: str, times: int, setting: str, eta: float, t: int, triples: list[tuple[pd.Series, pd.Series, pd.Series]]
) -> Repeats:
    right, corrected = (
        [[row[name] for row in rows] for rows in zip(*triples, strict=True)] for name in ("right", "calibrated_right")
    )
    return Repeats(
        task,
        times,
        setting,
        eta,
        t,
        tuple(int(row["seed"]) for _, row, _ in triples),
        Comparison.of(right[0], right[1]),
        Comparison.of(right[0], right[2]),
        Comparison.of(right[1], right[2]),
        Comparison.of(corrected[1], corrected[2]),
        Comparison.of(
            [first["labels"] == again["labels"] for first, again, _ in triples],
            [last["labels"] == again["labels"] for _, again, last in triples],
        ),
    )


@dataclass(frozen=True)
class Flipped:
    """How often the answers follow the exchanged label words, at T = 1 and at a later T, raw and batch-calibrated.

    `control` has the same answers, after batch calibration, of demonstrations whose words are not exchanged, for the
    seeds and test rows that the grid has: how often thinking gives the wrong word without being told to.
    """

    task: str
    setting: str
    eta: float
    t: int
    seeds: tuple[int, ...]
    raw: Comparison
    calibrated: Comparison
    control: Comparison | None


def flipped(control: pd.DataFrame, grid: pd.DataFrame) -> Iterator[Flipped]:
    """Every task, positions, eta and T > 1; an answer is right if it is the demonstrations' word for the true label."""
    for (task, setting, eta), rows in control.groupby(["task", "setting", "eta"], observed=True):
        firsts = rows[rows["t"] == 1].set_index("seed")
        for t, later in rows[rows["t"] > 1].groupby("t"):
            pairs = [(firsts.loc[row["seed"]], row) for _, row in later.iterrows() if row["seed"] in firsts.index]
            if pairs:
                raw, calibrated = (
                    Comparison.of(*([follows(row, corrected) for row in side] for side in zip(*pairs, strict=True)))
                    for corrected in (False, True)
                )
                seeds = tuple(int(row["seed"]) for _, row in pairs)
                usual = grid[(grid["task"] == task) & (grid["setting"] == setting) & (grid["eta"] == eta)]
                yield Flipped(task, setting, eta, t, seeds, raw, calibrated, _control([row for _, row in pairs], usual))


def _control(flipped_rows: Sequence[pd.Series], usual: pd.DataFrame) -> Comparison | None:
    """The wrong answers at T = 1 and at the same T on the same test rows; None if a seed has none."""
    by_key = {(row["seed"], row["rows"], row["t"]): follows(row, calibrated=True) for _, row in usual.iterrows()}
    sides = [[by_key.get((row["seed"], row["rows"], t)) for row in flipped_rows] for t in (1, flipped_rows[0]["t"])]
    before, after = ([side for side in each if side is not None] for each in sides)
    return Comparison.of(before, after) if len(before) == len(after) == len(flipped_rows) else None


def follows(row: pd.Series, calibrated: bool) -> Bools:
    """For every input, whether the label is the other one of two than the true one."""
    scores = row["scores"]
    assert len(scores.labels) == 2
    logs = batch_calibrated(scores.logs) if calibrated else scores.logs
    return np.asarray(predicted(logs) != scores.gold)
