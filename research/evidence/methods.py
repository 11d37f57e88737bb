"""Methods of Table 1 on more rows, with the scores of every row: the folders `random`, `techniques` and `choices`.

Techniques and thinking read random demonstrations; the others choose them from the same pool, LENS and influence, which
are slow, with fewer seeds. `nearest` has the nearest mean hidden state after the random demonstrations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from research.table1.page import PAPER_BEST, THINKING
from research.table1.runs import BASELINE, LABELS

from .discrimination import Compared, Difference, Pair, after_batch, after_bias, beside, compare
from .load import Evidence, Scores

TECHNIQUES = {
    "repeat-2": "the demonstrations twice in one prompt",
    "ensemble-4": "four orders, mean log p",
    "ct-kv": "the memory is trained by gradients",
    "composed": "demonstrations read apart",
}
BATCH, FITTED_BIAS = "batch calibration (no labels)", "a bias fitted on dev rows"
NEAREST_MEAN = "nearest mean hidden state of dev rows"
DEV_LABELS = 150
FOLDERS = ("random", "techniques", "choices")
CHOICES = (PAPER_BEST, "k-center", "global-entropy", "local-entropy", "random-valid")
SLOW = ("lens", "influence")  # choices, too, but most of an hour of a processor core for each task and seed
PAPER_CHOICES = (PAPER_BEST, "k-center")  # of these, those of the paper's Table 1
BY_DEV = "random-valid"  # the choice by labels of other rows, after which there is thinking, too
T = 5  # of thinking, in the paper's setting after random demonstrations and after random-valid
PAPER_HERE = f"thinking, the paper's setting, T = {T}, on the rows of Table 1"
AFTER_CHOICE = f"thinking after `{BY_DEV}` demonstrations (the paper's setting, T = {T})"
KINDS = {"accuracy": "plain", "calibrated": "plain batch"}  # the names that docs/table1.md has for them
MEASURED = {"plain": "accuracy", "plain batch": "batch"}  # of these, the measure of a comparison


def line_of(technique: str) -> str:
    """The name of a technique's line."""
    return f"`{technique}`: {TECHNIQUES[technique]}"


def beside_random(evidence: Evidence) -> Iterator[Compared]:
    """Thinking, techniques, choices and corrections beside random demonstrations that are read once.

    Thinking after a choice is beside one reading after it.
    """
    random, techniques, chosen = map(evidence.folder, FOLDERS)
    once, thinking = (random[random["t"] == t] for t in (1, T))
    choices, after_choices = (chosen[chosen["t"] == t] for t in (1, T))
    of_technique = {name: techniques[names_of(techniques) == name] for name in TECHNIQUES}
    read_once = beside(once, once)
    found = [
        Compared(PAPER_HERE, False, beside(thinking, once), thinks=True),
        *(Compared(line_of(name), False, beside(of_technique[name], once)) for name in TECHNIQUES),
        *(
            Compared(
                f"`{name}` demonstrations",
                False,
                beside(choices[choices["sampling"] == name], once),
                LABELS.get(name, 0),
            )
            for name in (*CHOICES, *SLOW)
        ),
        Compared(
            AFTER_CHOICE,
            False,
            beside(*(rows[rows["sampling"] == BY_DEV] for rows in (after_choices, choices))),
            LABELS[BY_DEV],
            thinks=True,
        ),
        Compared(BATCH, False, [_instead(pair, after_batch(pair.before)) for pair in read_once]),
        Compared(
            FITTED_BIAS,
            False,
            [
                _instead(pair, after_bias(pair.before, pair.dev_before))
                for pair in read_once
                if pair.dev_before is not None
            ],
            chosen_by=DEV_LABELS,
        ),
        Compared(NEAREST_MEAN, True, list(_nearest(evidence, once))),
    ]
    return (each for each in found if each.pairs)


def _instead(pair: Pair, after: Scores) -> Pair:
    """The scores before beside others of the same rows, without dev rows: no bias is fitted again."""
    return replace(pair, after=after, dev_before=None, dev_after=None)


def _nearest(evidence: Evidence, once: pd.DataFrame) -> Iterator[Pair]:
    """The nearest mean hidden state beside random demonstrations that are read once, where these are the same."""
    digests = once.set_index(["task", "seed", "part"])["demonstrations"]
    for pair in beside(once, once):
        found = evidence.nearest.get((pair.task, pair.seed, digests[pair.task, pair.seed, "test"]))
        if found is not None:
            assert np.array_equal(found.gold, pair.before.gold)
            yield replace(pair, after=found, dev_after=None, trained=True)


def after_choice_beside_lens(evidence: Evidence) -> list[Pair]:
    """Thinking after the choice by dev labels beside one reading of the demonstrations of LENS."""
    chosen = evidence.folder("choices")
    after, lens = ((chosen["sampling"] == name) & (chosen["t"] == t) for name, t in ((BY_DEV, T), ("lens", 1)))
    return beside(chosen[after], chosen[lens])


def after_choice_beside_random(evidence: Evidence, t: int) -> list[Pair]:
    """The demonstrations chosen by dev labels beside random ones, both at T."""
    random, _, chosen = map(evidence.folder, FOLDERS)
    return beside(chosen[(chosen["sampling"] == BY_DEV) & (chosen["t"] == t)], random[random["t"] == t])


def thinking_beside_choices(evidence: Evidence) -> dict[str, list[Pair]]:
    """Thinking after random demonstrations beside the paper's choices."""
    random, _, choices = map(evidence.folder, FOLDERS)
    thinking, once = random[random["t"] == T], choices[choices["t"] == 1]
    found = {name: beside(thinking, once[once["sampling"] == name]) for name in PAPER_CHOICES}
    return {name: pairs for name, pairs in found.items() if pairs}


def accuracies(evidence: Evidence) -> pd.DataFrame:
    """Columns `method`, `task`, `seed`, and the accuracy on test rows, raw and after batch calibration.

    Only tasks and seeds that every method has, so that all are compared on the same ones.
    """
    found = _test_rows(evidence)[["method", "task", "seed", *KINDS]].rename(columns=KINDS)
    return found.assign(task=found["task"].astype(str))


def gains(evidence: Evidence) -> dict[str, dict[str, Difference]]:
    """What every method changes beside random demonstrations on the same rows, by the kind of scores and by method."""
    rows = _test_rows(evidence)
    once = rows[rows["method"] == BASELINE]
    pairs = {
        name: beside(of_method, once) for name, of_method in rows.groupby("method", sort=False) if name != BASELINE
    }
    return {kind: {name: compare(each, measure) for name, each in pairs.items()} for kind, measure in MEASURED.items()}


def _test_rows(evidence: Evidence) -> pd.DataFrame:
    """The test rows of the tasks and seeds that every method but the slow ones has, with a column `method`."""
    random, techniques, choices = (rows[rows["part"] == "test"] for rows in map(evidence.folder, FOLDERS))
    found = pd.concat(
        [
            random[random["t"] == 1].assign(method=BASELINE),
            choices[(choices["t"] == 1) & choices["sampling"].isin(CHOICES)].assign(method=choices["sampling"]),
            random[random["t"] == T].assign(method=THINKING),
            techniques.assign(method=names_of(techniques)),
        ]
    )
    run = found.groupby(["task", "seed"], observed=True)["method"].transform("size")
    return found[run == found["method"].nunique()]


def names_of(rows: pd.DataFrame) -> pd.Series:
    """The names of techniques without their options."""
    return rows["technique"].map(lambda name: name.partition(" ")[0])
