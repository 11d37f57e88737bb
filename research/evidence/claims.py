"""The paper's claims, one by one, each with the paper's figure, ours, and what differs between the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from research.table1.page import Model
from research.table1.runs import DEV_ROWS, ROWS

from .cells import choices
from .discrimination import PAPER_BY_DEV, PAPER_FIVE, Compared, Difference, beside, compare, pairs_at, without_dev
from .load import Evidence
from .methods import (
    AFTER_CHOICE,
    BY_DEV,
    PAPER_CHOICES,
    PAPER_HERE,
    T,
    after_choice_beside_lens,
    after_choice_beside_random,
    thinking_beside_choices,
)
from .pooled import estimate
from .statistics import Interval, Spreads, correlation, spreads
from .variations import ETA, Subjects, by_group, by_shots, over_orders
from .words import interval, shown

CATEGORIES = {"stem": "STEM", "humanities": "humanities", "social_sciences": "social sciences", "others": "other"}
SETTINGS = {
    "the paper's setting": ("continued", [0.01]),
    "continued, eta tuned": ("continued", [0.01, 0.1]),
    "restarted, eta tuned": ("restarted", [0.01, 0.1]),
}
TUNED = (("plain", "thinking"), ("plain batch", "thinking batch"))  # of Table 1, at T = 1 and at T by dev rows


@dataclass(frozen=True)
class Found:
    """Our figures for a claim, and whether they bear it out."""

    figures: str = "not measured here"
    holds: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim, where the paper makes it and with which figure, ours, and what differs."""

    words: str
    paper: str
    found: Found
    differs: str = ""


def holds(*intervals: Interval | None) -> str:
    """Whether differences are above zero: yes if all of their intervals are, no if one is below, else not shown."""
    known = [each or (-np.inf, np.inf) for each in intervals]
    if any(high < 0 for _, high in known):
        return "no"
    return "yes" if all(low > 0 for low, _ in known) else "not shown"


def claims(evidence: Evidence, found: Mapping[str, Compared], table1: Model | None = None) -> Iterator[Claim]:
    """Every claim of the paper's experiments, in its order."""
    grid, subjects = evidence.grid, by_group(evidence)
    gains = {name: each.differences["accuracy"] for name, each in found.items()}
    yield Claim(
        "five readings (T = 5, eta 0.01, no dev labels) raise accuracy",
        "+22.9 (41.8 to 64.7; Table 1, GPT-2 Large)",
        _gain(gains, PAPER_FIVE, _on_other_rows(gains)),
        "the paper's T = 1 is of another program, with other prompts",
    )
    yield Claim(
        "they raise it more than any of the paper's choices of demonstrations without dev labels",
        "+18.1 (64.7 against 46.6 of GraphCut, the best of eleven; Table 1)",
        _against_choices(evidence),
        "T = 5, eta 0.01. Two of the paper's choices decide: graph-cut, its best, which chose without `--balance` "
        "here, so that its prompts miss labels (on AG News all 8 demonstrations have one), and k-center, which was "
        "picked by 150 of the test rows",
    )
    yield Claim(
        "after demonstrations that were chosen by dev rows, thinking still raises it",
        "+6.2 (65.8 to 72.0; Table 1)",
        _gain(gains, AFTER_CHOICE, _by_dev_rows(table1)),
        "demonstrations by random-valid; T = 5, eta 0.01 decide, where the paper chose T up to 15 by dev rows",
    )
    yield Claim(
        "with dev labels thinking is above the best choice of demonstrations, LENS",
        "+1.8 (70.2 to 72.0; Table 1)",
        _against_lens(evidence),
        "thinking after random-valid at T = 5, eta 0.01, where the paper chose T up to 15 by dev rows; three seeds",
    )
    yield Claim(
        "dev labels, by which demonstrations and T are chosen, raise the accuracy of thinking",
        "+7.3 (64.7 to 72.0; Table 1)",
        _with_labels(evidence),
        "thinking after random-valid minus thinking after random demonstrations, T = 5 on both sides",
    )
    yield Claim(
        "every model gains, from 125 million to 13 billion parameters",
        "+1.9 (LLaMA2-7B and 13B) to +20.6 (GPT-2 XL); OPT-125M +13.8 (Table 2)",
        _gain(gains, PAPER_BY_DEV, "; Gemma 3 270M has [a page of its own](second-model.md)"),
        "T of 1, 2, 3, 5, 8 and 12 by 150 dev rows; in Table 1 the paper chooses T up to 15 by as many dev rows as "
        "test rows, of Table 2 it does not say how",
    )
    yield Claim(
        "smaller models gain more, relative to T = 1",
        "said of MMLU and BBH, with Pythia as the example (text to Table 3)",
        Found(),
        "two models, which differ in more than their size",
    )
    yield Claim(
        "MMLU and BBH gain on every model",
        "+2.5 to +5.0, and +3.7 to +5.6 (Table 3)",
        _of_groups(subjects),
        "T = 5, eta 0.01, continued positions, float32; the demonstrations of the data sets in one order, at most "
        f"{max(each.rows for each in subjects.values())} rows of each task"
        if subjects
        else "",
    )
    yield Claim(
        "STEM gains more than the other categories of MMLU",
        "LLaMA2-7B: +3.9 against +2.3 to +2.6 (Figure 3)",
        _of_stem(subjects),
        "as in the line above; where T = 1 is at chance, a change says nothing of what a model knows"
        if subjects
        else "",
    )
    yield Claim(
        "with every number of demonstrations thinking raises accuracy, which varies less",
        "Figure 4, no values printed",
        _of_shots(evidence),
        "T = 5, eta 0.01, 100 rows, three seeds; the paper shows SST-2 and AG News. *Deviations* are the standard ones "
        "over the seeds of a task, at T = 1 and then, and the interval of their change",
    )
    yield Claim(
        "more demonstrations raise accuracy, at T = 1 and with thinking",
        "Figure 4, no values printed",
        _of_more_shots(evidence),
        "16 minus 4 demonstrations, on the rows of the line above",
    )
    yield Claim(
        "accuracy varies less over seeds",
        "Figure 5 (left, SST-2), no values printed",
        _over_seeds(grid),
        "standard deviation over the seeds of a task, mean over tasks, and the interval of its change",
    )
    yield Claim(
        "accuracy varies less over orders",
        "Figure 5 (right), no values printed",
        _over_orders(over_orders(evidence)),
        "the same over five orders of one set of demonstrations; T = 5, eta 0.01",
    )
    yield Claim(
        "with more readings accuracy rises",
        "Figure 6 (left), no values printed",
        _over_t(evidence),
        "difference from T = 1, mean over tasks; continued positions; eta 0.001 and 0.3 on 100 rows, three seeds; "
        "it holds if one T of eta 0.01 is above zero",
    )
    yield Claim(
        "eta 0.01 balances accuracy and the number of readings",
        "Figure 6 (left), no values printed",
        _of_etas(grid),
        "accuracy alone, with T by dev rows for each eta; with restarted positions as well",
    )
    yield Claim(
        "accuracies of dev and test rows over T are aligned",
        "Figure 6 (right), no values printed",
        _alignment(grid),
        "correlation over T, mean over tasks and seeds; what T by dev rows gives is in the line *every model gains*",
    )


def _gain(gains: dict[str, Difference], name: str, more: str = "") -> Found:
    """A comparison by accuracy, by which the claim is judged, and what else is said."""
    return Found(f"{shown(gains[name])}{more}", holds(gains[name].interval)) if name in gains else Found()


def _on_other_rows(gains: dict[str, Difference]) -> str:
    known = PAPER_HERE in gains
    return f"; after others, on rows of [Table 1](table1.md), {shown(gains[PAPER_HERE])}" if known else ""


def _by_dev_rows(table1: Model | None) -> str:
    """What thinking with T by dev rows changes after `BY_DEV` in Table 1; empty without its rows."""
    if table1 is None or BY_DEV not in table1.complete:
        return ""
    raw, batch = (table1.change((BY_DEV, before), (BY_DEV, after)) for before, after in TUNED)
    return (
        f"; on {ROWS} rows of [Table 1](table1.md), with eta 0.1, restarted positions and T by {DEV_ROWS} dev rows, "
        f"{shown(raw)}, and after batch calibration {shown(batch)}"
    )


def _against_choices(evidence: Evidence) -> Found:
    """The paper's setting minus each choice without dev labels, raw and after batch calibration; the paper's decide."""
    pairs = thinking_beside_choices(evidence)
    raw, batch = (
        {name: compare(of_choice, measure) for name, of_choice in pairs.items()} for measure in ("accuracy", "batch")
    )
    figures = [f"{shown(raw[name])} against {name}, after batch calibration {shown(batch[name])}" for name in raw]
    judged = [raw[name].interval for name in PAPER_CHOICES if name in raw]
    return Found("; ".join(figures), holds(*judged) if judged else "") if figures else Found()


def _against_lens(evidence: Evidence) -> Found:
    pairs = after_choice_beside_lens(evidence)
    if not pairs:
        return Found()
    raw, batch = (compare(pairs, measure) for measure in ("accuracy", "batch"))
    return Found(f"{shown(raw)}; after batch calibration {shown(batch)}", holds(raw.interval))


def _with_labels(evidence: Evidence) -> Found:
    """Thinking after the choice by dev labels minus thinking after random demonstrations, and the same at T = 1."""
    thought, once = (after_choice_beside_random(evidence, t) for t in (T, 1))
    if not thought or not once:
        return Found()
    change, first = (compare(pairs, "accuracy") for pairs in (thought, once))
    return Found(f"{shown(change)}; of one reading {shown(first)}", holds(change.interval))


def _of_more_shots(evidence: Evidence, few: int = 4, many: int = 16) -> Found:
    """What more demonstrations change at T = 1 and at T = 5; both decide."""
    rows = evidence.folder("shots")
    found = {}
    for t in (1, T):
        of_few, of_many = (rows[(rows["t"] == t) & (rows["shots"] == shots)] for shots in (few, many))
        if pairs := beside(of_many, of_few):
            found[t] = compare(pairs, "accuracy")
    if len(found) < 2:
        return Found()
    figures = "; ".join(f"{shown(change)} at T = {t}" for t, change in found.items())
    return Found(figures, holds(*(change.interval for change in found.values())))


def _of_groups(subjects: dict[str, Subjects]) -> Found:
    known = {title: subjects[name] for name, title in (("mmlu", "MMLU"), ("bbh", "BBH")) if name in subjects}
    if not known:
        return Found()
    figures = "; ".join(f"{title} {_of_group(each)}" for title, each in known.items())
    return Found(figures, holds(*(each.change.interval for each in known.values())))


def _of_group(each: Subjects) -> str:
    moved = f"{abs(each.more)} {'fewer' if each.more < 0 else 'more'} of {each.answers:,} answers right"
    return (
        f"{shown(each.change)}, T = 1 {100 * each.before:.1f} %, chance {100 * each.chance:.1f} % "
        f"({len(each.steps)} tasks, {moved})"
    )


def _of_stem(subjects: dict[str, Subjects]) -> Found:
    """The categories of MMLU, and how much more the tasks of STEM gain than those of each other."""
    known = {title: subjects[f"mmlu/{name}"] for name, title in CATEGORIES.items() if f"mmlu/{name}" in subjects}
    parts = [f"{title} {_of_group(each)}" for title, each in known.items()]
    if len(known) < len(CATEGORIES) or min(len(each.steps) for each in known.values()) < 2:
        return Found("; ".join(parts)) if parts else Found()
    stem, *others = known
    beyond = {title: known[stem].beyond(known[title]) for title in others}
    parts += [f"{stem} minus {title} {shown(each)}" for title, each in beyond.items()]
    return Found("; ".join(parts), holds(*(each.interval for each in beyond.values())))


def _of_shots(evidence: Evidence) -> Found:
    """Every number of demonstrations; all of them decide."""
    found = list(by_shots(evidence))
    parts = [
        f"{each.shots}: {100 * each.change.before:.1f} %, {shown(each.change)}, deviations "
        f"{_fallen(f'{100 * each.spread.before:.1f} and', each.spread)}"
        for each in found
    ]
    judged = [ends for each in found for ends in (each.change.interval, _less(each.spread.interval))]
    return Found("; ".join(parts), holds(*judged)) if found else Found()


def _over_seeds(grid: pd.DataFrame) -> Found:
    """The standard deviation over seeds at T = 1, after calibration, and in all settings; the paper's decides."""
    parts: list[str] = []
    judged: list[Interval] = []
    for name, (positions, etas) in SETTINGS.items():
        chosen = choices(grid[grid["setting"] == positions], etas)
        if chosen.empty or chosen.groupby("task", observed=True).size().min() < 2:
            continue
        first, calibrated, thought = (
            [np.array([row[key] for row in rows[column]]) for _, rows in chosen.groupby("task", observed=True)]
            for column, key in (("before", "accuracy"), ("before", "calibrated"), ("after", "accuracy"))
        )
        if not parts:  # T = 1 is the same in all settings
            change = spreads(first, calibrated)
            parts.append(f"{100 * change.before:.1f} at T = 1; {_fallen('T = 1 calibrated', change)}")
        change = spreads(first, thought)
        parts.append(_fallen(name, change))
        judged.append(change.interval)
    return Found("; ".join(parts), holds(_less(judged[0]))) if parts else Found()


def _fallen(words: str, change: Spreads) -> str:
    return f"{words} {100 * change.after:.1f} [{interval(change.interval)}]"


def _less(ends: Interval) -> Interval:
    """The interval of a fall."""
    return -ends[1], -ends[0]


def _over_orders(found: Spreads | None) -> Found:
    if found is None:
        return Found()
    return Found(f"{100 * found.before:.1f} at T = 1; {_fallen('T = 5', found)}", holds(_less(found.interval)))


def _over_t(evidence: Evidence) -> Found:
    """Differences at three T for every eta; with eta 0.01, whether one of them rises, or else one falls."""
    grid, etas = evidence.grid, evidence.folder("etas")
    continued = grid[grid["setting"] == "continued"]
    parts, judged = list[str](), list[Interval]()
    for eta, rows in ((0.001, etas), (0.01, continued), (0.1, continued), (0.3, etas)):
        at = {t: compare(pairs, "accuracy") for t in (2, 5, 12) if (pairs := pairs_at(rows, eta, t))}
        if at:
            parts.append(f"eta {eta:g}: " + ", ".join(f"{shown(change)} at T = {t}" for t, change in at.items()))
        judged += [change.interval for change in at.values() if eta == ETA]
    if not parts:
        return Found()
    rises, falls = any(low > 0 for low, _ in judged), any(high < 0 for _, high in judged)
    return Found("; ".join(parts), "yes" if rises else "no" if falls else "not shown")


def _of_etas(grid: pd.DataFrame) -> Found:
    """The accuracy with T by dev rows, eta 0.01 minus eta 0.1; continued positions, the paper's, decide."""
    found = {}
    for positions in ("continued", "restarted"):
        of_etas = [choices(grid[grid["setting"] == positions], [eta]) for eta in (0.1, 0.01)]
        both = of_etas[0].merge(of_etas[1], on=["task", "seed"])
        if len(both):
            found[positions] = compare(without_dev(both["after_x"], both["after_y"]), "accuracy")
    if "continued" not in found:
        return Found()
    figures = "; ".join(f"{positions} {shown(change)}" for positions, change in found.items())
    return Found(f"eta 0.01 minus eta 0.1, {figures}", holds(found["continued"].interval))


def _alignment(grid: pd.DataFrame) -> Found:
    """The correlation over T of the accuracies of dev and test rows, mean over tasks and seeds; eta 0.01 decides."""
    parts: list[str] = []
    judged: list[Interval | None] = []
    for eta in (0.01, 0.1):
        rows, of_pairs = grid[(grid["setting"] == "continued") & (grid["eta"] == eta)], {}
        for pair, job in rows.groupby(["task", "seed"], observed=True):
            both = job.pivot(index="t", columns="part", values="accuracy").dropna()
            if {"dev", "test"} <= set(both):
                of_pairs[pair] = correlation(both["dev"].to_numpy(), both["test"].to_numpy())
        known = {pair: value for pair, value in of_pairs.items() if not np.isnan(value)}
        if known:
            mean = estimate(list(known.values()), list(known))
            ends = f" [{mean.interval[0]:.2f} to {mean.interval[1]:.2f}]" if mean.interval else ""
            parts.append(f"eta {eta:g}: {mean.mean:.2f}{ends}")
            judged.append(mean.interval)
    return Found("; ".join(parts), holds(judged[0])) if parts else Found()
