"""The paper's claims, one by one, each with the paper's figure, ours, and what differs between the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .cells import choices
from .discrimination import (
    AFTER_CHOICE,
    PAPER_BY_DEV,
    PAPER_FIVE,
    Compared,
    Difference,
    compare,
    pairs_at,
    without_dev,
)
from .findings import interval, shown
from .load import Evidence
from .measures import Floats
from .methods import thinking_beside_choices
from .pooled import estimate
from .statistics import Spreads, correlation, spreads
from .variations import Shots, Subjects, by_group, by_shots, over_orders

NOT_MEASURED = "not measured here"
CATEGORIES = {"stem": "STEM", "humanities": "humanities", "social_sciences": "social sciences", "others": "others"}
SETTINGS = {
    "the paper's setting": ("continued", [0.01]),
    "continued, eta tuned": ("continued", [0.01, 0.1]),
    "restarted, eta tuned": ("restarted", [0.01, 0.1]),
}


@dataclass(frozen=True)
class Claim:
    """A claim, where the paper makes it and with which figure, ours, and what differs."""

    words: str
    paper: str
    ours: str
    differs: str = ""


def claims(evidence: Evidence, found: Sequence[Compared]) -> Iterator[Claim]:
    """Every claim of the paper's experiments, in its order."""
    grid, subjects = evidence.grid, by_group(evidence)
    by_name = {each.name: each.differences for each in found}
    continued, etas = grid[grid["setting"] == "continued"], evidence.folder("etas")
    with_etas = [(etas, 0.001), (continued, 0.01), (continued, 0.1), (etas, 0.3)]
    yield Claim(
        "five readings (T = 5, eta 0.01, no dev labels) raise accuracy",
        "+22.9 (41.8 to 64.7; Table 1, GPT-2 Large)",
        _accuracy(by_name, PAPER_FIVE),
        "the paper's T = 1 is of another program, with other prompts",
    )
    yield Claim(
        "they raise it more than any choice of demonstrations that needs no dev labels",
        "+18.1 (64.7 against 46.6 of GraphCut, the best of eleven; Table 1)",
        _against_choices(evidence),
        "not the paper's choices; 300 rows",
    )
    yield Claim(
        "after demonstrations that were chosen by dev rows, thinking still raises it",
        "+6.2 (65.8 to 72.0; Table 1)",
        _accuracy(by_name, AFTER_CHOICE),
        "T = 5, eta 0.01; three tasks (SST-2, SST-5, TREC), three seeds, 100 rows",
    )
    yield Claim(
        "every model gains, from 125 million to 13 billion parameters",
        "+1.9 (LLaMA2-7B and 13B) to +20.6 (GPT-2 XL); OPT-125M +13.8 (Table 2)",
        f"{_accuracy(by_name, PAPER_BY_DEV)}; Gemma 3 270M has [a page of its own](second-model.md)",
        "T by dev labels; Table 2 does not say how its T was chosen",
    )
    yield Claim(
        "MMLU and BBH gain on every model",
        "+2.5 to +5.0, and +3.7 to +5.6 (Table 3)",
        _of_groups(subjects, {"mmlu": "MMLU", "bbh": "BBH"}),
        "T = 5, eta 0.01, continued positions, float32; the demonstrations of the data sets in one order, at most "
        f"{max(each.rows for each in subjects.values())} rows of each task"
        if subjects
        else "",
    )
    yield Claim(
        "STEM gains more than the other categories of MMLU",
        "LLaMA2-7B: +3.9 against +2.3 to +2.6 (Figure 3)",
        _of_groups(subjects, {f"mmlu/{name}": title for name, title in CATEGORIES.items()}) + _of_stem(subjects),
        "as in the line above; where T = 1 is at chance, a change says nothing of what a model knows"
        if subjects
        else "",
    )
    yield Claim(
        "fewer demonstrations suffice, with less variance",
        "Figure 4, no values printed",
        "; ".join(map(_of_shots, by_shots(evidence))) or NOT_MEASURED,
        "T = 5, eta 0.01, 100 rows, three seeds; the paper shows SST-2 and AG News. In brackets standard deviations "
        "over the seeds of a task",
    )
    yield Claim(
        "accuracy varies less over seeds",
        "Figure 5 (left, SST-2), no values printed",
        "; ".join(_spreads(grid)) or NOT_MEASURED,
        "standard deviation over the seeds of a task, mean over tasks",
    )
    yield Claim(
        "accuracy varies less over orders",
        "Figure 5 (right), no values printed",
        _of_orders(over_orders(evidence)),
        "standard deviation over five orders of one set of demonstrations, mean over tasks; T = 5, eta 0.01",
    )
    yield Claim(
        "over T, accuracy rises and later falls, sooner with a larger eta",
        "Figure 6 (left), no values printed",
        "; ".join(f"eta {eta:g}: {_over_t(rows, eta)}" for rows, eta in with_etas),
        "difference from T = 1, mean over tasks; continued positions; eta 0.001 and 0.3 on 100 rows, three seeds",
    )
    yield Claim(
        "eta 0.01 is the best balance",
        "Figure 6 (left), no values printed",
        _tuned(grid),
        "T is chosen by dev rows for each eta; with restarted positions as well",
    )
    yield Claim(
        "accuracies of dev and test rows over T are aligned, so that dev rows can choose T",
        "Figure 6 (right), no values printed",
        "; ".join(f"eta {eta:g}: {_alignment(grid, eta)}" for eta in (0.01, 0.1)),
        "correlation over T, mean over tasks and seeds",
    )


def _accuracy(by_name: dict[str, dict[str, Difference]], name: str) -> str:
    if name not in by_name:
        return NOT_MEASURED
    return shown(by_name[name]["accuracy"])


def _against_choices(evidence: Evidence) -> str:
    """The paper's setting minus the best of the choices that need no labels, raw and after batch calibration."""
    beside_choices = thinking_beside_choices(evidence)
    if not beside_choices:
        return NOT_MEASURED
    raw = {name: compare(pairs, "accuracy") for name, pairs in beside_choices.items()}
    best = max(raw, key=lambda name: raw[name].before)
    return (
        f"{shown(raw[best])} against {best}, the best on the test rows of {', '.join(raw)}; after batch calibration "
        f"{shown(compare(beside_choices[best], 'batch'))}"
    )


def _spreads(grid: pd.DataFrame) -> Iterator[str]:
    """The standard deviation over seeds at T = 1, and its change by calibration and by thinking."""
    for number, (name, (positions, etas)) in enumerate(SETTINGS.items()):
        chosen = choices(grid[grid["setting"] == positions], etas)
        if chosen.empty or chosen.groupby("task", observed=True).size().min() < 2:
            continue
        sides = {
            words: [_values(rows, *place) for _, rows in chosen.groupby("task", observed=True)]
            for words, place in {
                "T = 1": ("before", "accuracy"),
                "calibrated": ("before", "calibrated"),
                name: ("after", "accuracy"),
            }.items()
        }
        if not number:  # T = 1 is the same in all settings
            calibrated = spreads(sides["T = 1"], sides["calibrated"])
            yield f"{100 * calibrated.before:.1f} at T = 1; {_fallen('T = 1 calibrated', calibrated)}"
        yield _fallen(name, spreads(sides["T = 1"], sides[name]))


def _fallen(words: str, change: Spreads) -> str:
    return f"{words} {100 * change.after:.1f} (change {interval(change.interval)})"


def _values(rows: pd.DataFrame, column: str, key: str) -> Floats:
    return np.array([row[key] for row in rows[column]])


def _of_groups(subjects: dict[str, Subjects], titles: dict[str, str]) -> str:
    found = [(title, subjects[name]) for name, title in titles.items() if name in subjects]
    parts = [
        f"{title} {shown(each.change)}, T = 1 {100 * each.before:.1f} %, chance {100 * each.chance:.1f} % "
        f"({len(each.steps)} tasks)"
        for title, each in found
    ]
    return "; ".join(parts) or NOT_MEASURED


def _of_stem(subjects: dict[str, Subjects]) -> str:
    """How much more the tasks of STEM gain than the others; empty if there are too few for an interval."""
    stem, every = subjects.get("mmlu/stem"), subjects.get("mmlu")
    if stem is None or every is None or min(len(stem.steps), len(every.steps) - len(stem.steps)) < 2:
        return ""
    return f"; STEM minus the others {shown(stem.beyond(every))}"


def _of_shots(found: Shots) -> str:
    deviations = f"{100 * found.spread.before:.1f} to {100 * found.spread.after:.1f}"
    return f"{found.shots}: {100 * found.change.before:.1f} %, {shown(found.change)} [{deviations}]"


def _of_orders(found: Spreads | None) -> str:
    return NOT_MEASURED if found is None else f"{100 * found.before:.1f} at T = 1; {_fallen('T = 5', found)}"


def _over_t(of_setting: pd.DataFrame, eta: float) -> str:
    at = {t: pairs_at(of_setting, eta, t) for t in (2, 5, 12)}
    changes = [f"{shown(compare(pairs, 'accuracy'))} at T = {t}" for t, pairs in at.items() if pairs]
    return ", ".join(changes) or NOT_MEASURED


def _tuned(grid: pd.DataFrame) -> str:
    """The accuracy with T by dev rows, eta 0.1 minus eta 0.01."""
    found = []
    for positions in ("continued", "restarted"):
        of_etas = [choices(grid[grid["setting"] == positions], [eta]) for eta in (0.01, 0.1)]
        both = of_etas[0].merge(of_etas[1], on=["task", "seed"])
        if len(both):
            change = compare(without_dev(both["after_x"], both["after_y"]), "accuracy")
            found.append(f"{positions} {shown(change)}")
    return "eta 0.1 minus eta 0.01, " + "; ".join(found) if found else NOT_MEASURED


def _alignment(grid: pd.DataFrame, eta: float) -> str:
    """The correlation over T of the accuracies of dev and test rows, mean over tasks and seeds."""
    rows = grid[(grid["setting"] == "continued") & (grid["eta"] == eta)]
    found = {}
    for pair, job in rows.groupby(["task", "seed"], observed=True):
        both = job.pivot(index="t", columns="part", values="accuracy").dropna()
        if {"dev", "test"} <= set(both):
            found[pair] = correlation(both["dev"].to_numpy(), both["test"].to_numpy())
    known = {pair: value for pair, value in found.items() if not np.isnan(value)}
    if not known:
        return NOT_MEASURED
    value = estimate(list(known.values()), list(known))
    low, high = value.interval or (float("nan"), float("nan"))
    return f"{value.mean:.2f} ({low:.2f} to {high:.2f})"
