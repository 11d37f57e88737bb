"""Sentences chosen by rules from the figures, so that they hold whatever the figures are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from deepthink_cli.evaluation.metrics import ALPHA

from .cells import HARMS, HELPS, PAPER, choices
from .controls import Flipped, Repeats
from .discrimination import MEASURES, Compared, Difference, Pair, adjusted, compare, corrected
from .load import TASK_NAMES, Evidence
from .measures import Floats
from .pooled import Estimate, estimate, summary
from .predictors import PREDICTORS, Correlation

Change = Estimate | Difference
ZERO = 1e-9  # what rounding leaves of an end that is zero
BEYOND_PRIOR = ("matched", "fitted", "pairs", "AUC")  # what a move of the prior alone changes little or not at all
SMALL = 0.02  # a difference of accuracies below which two ways are said to give the same


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def points(difference: float) -> str:
    """A difference of shares in points, with its sign."""
    return f"{100 * difference:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def interval(ends: tuple[float, float] | None) -> str:
    """An interval in points; empty if there is none."""
    return "" if ends is None else " to ".join(signed(100 * end, 1) for end in ends)


def signed(end: float, digits: int) -> str:
    """An end of an interval, with its sign also where it rounds to zero."""
    return f"{end:+.{digits}f}" if abs(end) > ZERO else f"{0:.{digits}f}"


def shown(change: Change) -> str:
    """A mean difference and its interval, in points."""
    return points(change.mean) + (f" [{interval(change.interval)}]" if change.interval else "")


def with_interval(change: Change) -> str:
    """The same in a sentence: with the unit, and with words where there is no interval."""
    ends = interval(change.interval) if change.interval else "too few seeds for an interval"
    return f"{points(change.mean)} points [{ends}]"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural if it is not 1."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def names(tasks: Sequence[str]) -> str:
    """Task names joined by commas and `and`."""
    words = [TASK_NAMES.get(task, task) for task in tasks]
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)


def described(file: str) -> str:
    """A model by the name of its file: the bits of its weights, and whether it expects conversations."""
    match = re.fullmatch(r"(.+?)[.-](q(\d)\w*)\.gguf", file, re.IGNORECASE)
    bits = f" with its weights in {match[3]} bits (GGUF {match[2].upper()})" if match else ""
    chat = ", an instruct model that is read without its chat template" if "instruct" in file.lower() else ""
    return f"{match[1] if match else file}{bits}{chat}"


def sizes(rows: pd.DataFrame, part: str) -> str:
    """How many inputs the rows of a part have."""
    found = sorted({len(right) for right in rows[rows["part"] == part]["right"]})
    return " or ".join(map(str, found)) or "no"


def covered(rows: pd.DataFrame) -> str:
    """The seeds of every setting of the grid that have every T and eta on test and dev rows."""
    of_settings = {}
    for setting, chosen in choices(rows).groupby("setting", observed=True):
        seeds = ", ".join(map(str, sorted(set(chosen["seed"]))))
        of_settings[str(setting)] = f"{seeds} ({len(chosen)} task-seed pairs)"
    if len(set(of_settings.values())) == 1:
        of_settings = {"every setting": next(iter(of_settings.values()))}
    listed = "; ".join(f"{setting} has {seeds}" for setting, seeds in of_settings.items())
    return f"Seeds with every T and eta on test and dev rows: {listed or 'none yet'}."


def headline(chosen: pd.DataFrame, evidence: Evidence) -> str:
    """What was run, and how often thinking with T and eta by dev rows helps and harms on the rows of one run."""
    if chosen.empty:
        return "No task, setting and seed has been run to its end yet: nothing can be said."
    tasks, seeds = list(dict.fromkeys(chosen["task"])), chosen["seed"].nunique()
    whole = summary(chosen)
    return (
        f"{' and '.join(evidence.models)} was run on {names(tasks)} with {counted(seeds, 'seed')}: "
        f"{counted(whole.runs, 'run')}, each a task with a setting and a seed. With T and eta chosen for each by the "
        f"labels of {sizes(evidence.grid, 'dev')} dev rows, thinking helps in {counted(whole.helps, 'run')}, harms in "
        f"{whole.harms}, and shows no difference in {whole.same} (McNemar's test at 5 % on each run's test rows, not "
        f"corrected for their number); in {whole.kept_first} the dev rows chose T = 1."
    )


def question(
    first: Compared, chosen: pd.Series, largest: int, biased: Sequence[Pair] = (), whole: Compared | None = None
) -> str:
    """What a comparison of the paper's setting shows: more discrimination, less, or a move of the prior alone.

    `chosen` are the T that its dev rows chose, up to the `largest` that was run; `biased` are the pairs at the T that
    they choose after a bias; `whole` is the same setting at T = 5 on all test rows.
    """
    changes, area = first.differences, first.differences["pairs"]
    by_labels = ""
    if len(chosen):
        by_labels = (
            f"; {first.labels} labelled rows choose T = 1 in {(chosen == 1).sum()} of {len(chosen)} cases, and the "
            f"largest, T = {largest}, in {(chosen == largest).sum()}"
        )
    bullets = [
        f"*Accuracy* changes by {with_interval(changes['accuracy'])}, from {percent(changes['accuracy'].before)} at "
        "T = 1.",
        "*Labels given as often*: if one constant for each label, added to the scores of T = 1, makes it give every "
        f"label as often as thinking does, the difference is {with_interval(changes['matched'])}.",
    ]
    if "fitted" in changes:
        bullets.append(
            "*Equal labels*: with a bias of each label fitted on the same labelled rows, T = 1 has "
            f"{percent(changes['fitted'].before)}, and thinking changes that by {with_interval(changes['fitted'])}"
            + (f" (with T chosen after the bias by {shown(compare(biased, 'fitted'))})." if biased else ".")
        )
    bullets.append(
        "*Telling labels apart*: the area under the ROC curve between two labels, which is how often an input of one "
        "ranks above an input of the other, and which no constants change, changes by "
        f"{with_interval(area)}, from {percent(area.before)}."
    )
    verdict = {
        1: "So in this setting thinking tells the inputs of different labels apart better",
        0: "So in this setting thinking is not shown to tell the inputs of different labels apart better, or less well",
        -1: "So in this setting thinking tells the inputs of different labels apart less well",
    }[int(area.interval[0] > 0) - int(area.interval[1] < 0)]
    heading = f"In the setting of the paper (eta 0.01, no momentum{by_labels}) thinking does this:"
    said = [f"{verdict}, by the interval of this one comparison."]
    if whole is not None:
        accuracy, matched, pairs = (with_interval(whole.differences[name]) for name in ("accuracy", "matched", "pairs"))
        said.append(
            f"With T = 5 for all, on {whole.name}, accuracy changes by {accuracy}, with every label given as often by "
            f"{matched}, and that area by {pairs}."
        )
    return "\n".join([heading, "", *(f"- {each}" for each in bullets), "", " ".join(said)])


def rising(found: Sequence[Compared]) -> str:
    """Which lines rise and fall in each measure, by their intervals and after Holm's correction."""
    p_values, parts = adjusted(found), []
    for name in MEASURES:
        known = [each for each in found if name in each.differences]
        if not known:
            continue
        sides = []
        for verb, sign in (("rises", 1), ("falls", -1)):
            moved = [each for each in known if min(sign * end for end in each.differences[name].interval) > 0]
            marks = ["**" if p_values[each.name, name] < ALPHA else "" for each in moved]
            listed = [f"{mark}{short_name(each.name)}{mark}" for each, mark in zip(moved, marks, strict=True)]
            sides.append(f"{verb} in {len(moved)}" + (f" ({'; '.join(listed)})" if moved else ""))
        parts.append(f"- *{name}*, of {len(known)} lines: {', '.join(sides)}")
    heading = (
        "What rises and falls by the lines' own intervals; in bold what is left after Holm's correction over the "
        f"{len(p_values)} entries of the table:"
    )
    return "\n".join([heading, "", *parts])


def without_one_task(found: Sequence[Compared]) -> str:
    """What is left of discrimination after Holm's correction, without the task that adds most to it."""
    p_values, parts = adjusted(found), []
    for name in BEYOND_PRIOR:
        listed = []
        for each in found:
            if name in each.differences and p_values[each.name, name] < ALPHA:
                task = _most(each, name)
                rest = compare([pair for pair in each.pairs if pair.task != task], name)
                whole = points(each.differences[name].mean)
                listed.append(f"{short_name(each.name)} {whole}, without {names([task])} {shown(rest)}")
        if listed:
            parts.append(f"- *{name}*: {'; '.join(listed)}")
    if not parts:
        return ""
    heading = (
        "What is left in *matched*, *fitted*, *pairs* and *AUC* after this correction, and the mean without the task "
        "that adds most to it:"
    )
    return "\n".join([heading, "", *parts])


def _most(each: Compared, name: str) -> str:
    """The task that adds most to the mean of a measure."""
    mean, tasks = each.differences[name].mean, dict.fromkeys(task for task, _ in each.cells)
    parts = {task: compare([pair for pair in each.pairs if pair.task == task], name).mean for task in tasks}
    return max(parts, key=lambda task: parts[task] * mean)


def short_name(name: str) -> str:
    """The name of a line without its explanation."""
    return re.split(r": | \(", name)[0]


def tuned_sentence(lines: Sequence[dict[str, Any]]) -> str:
    """How often `tune` prefers something, what its corrections change on test rows, and what was not tried."""
    kept = [line for line in lines if line["difference_beyond_noise"]]
    steps = [
        f"{TASK_NAMES.get(line['task'], line['task'])} {points(line['test']['accuracy'] - line['test']['uncorrected'])}"
        for line in kept
        if line["choice"]["calibration"] != "none"
    ]
    changed = (
        f" On test rows the correction of its memory changes accuracy by {', '.join(steps)} points." if steps else ""
    )
    tried = [line for line in lines if tried_thinking(line)]
    readings = sum(line["choice"]["iterations"] > 1 for line in tried)
    untried = [line["task"] for line in lines if line not in tried]
    where = f" where there was time to try T = 2 with Deep-Thinking (not on {names(untried)})" if untried else ""
    outside = [line["task"] for line in lines if not _inside(line["test"]["accuracy"], line["nested"]["ci95"])]
    missed = ""
    if outside:
        missed = (
            f" On {names(outside)} the accuracy of its memory is outside the 95 % interval of its own estimate, which "
            "is a mean over many sets of demonstrations; the memory has one."
        )
    return (
        "By its own cross-validation `tune` prefers a setting to plain in-context learning, beyond noise, on "
        f"{len(kept)} of {counted(len(lines), 'task')}.{changed}{missed} More than one reading is chosen on "
        f"{readings or 'none'} of the {counted(len(tried), 'task')}{where}.{_rivals_sentence(lines)}"
    )


def _inside(value: float, ends: Sequence[float]) -> bool:
    return ends[0] <= value <= ends[1]


def _rivals_sentence(lines: Sequence[dict[str, Any]]) -> str:
    """The tasks on which a classifier without demonstrations is above the nested estimate."""
    better = [
        line["task"]
        for line in lines
        if any(rival["accuracy"] > line["nested"]["accuracy"] for rival in line["rivals"])
    ]
    return f" On {names(better)} a classifier that reads no demonstrations has a higher estimate." if better else ""


def tried_thinking(line: dict[str, Any]) -> bool:
    """Whether the budget of a task allowed Deep-Thinking with T > 1."""
    return not any(words.startswith("deep-thinking, T = 2") for words in line["not_tried"])


def fixed_sentence(every: pd.DataFrame, page: str = "") -> str:
    """How many results are helped and harmed where no T or eta is chosen; empty without rows.

    `page` is that of the evidence, on other pages.
    """
    of_paper = every[(every["setting"] == PAPER[0]) & (every["eta"] == PAPER[1])]
    whole, paper = ([each for change in rows["raw"] for each in change.verdicts] for rows in (every, of_paper))
    if not whole:
        return ""
    own = f"; in the paper's setting it helps in {_of_results(paper)}" if paper else ""
    return (
        f"With nothing chosen, each T > 1 and eta of [four settings]({page}#all-settings) counted apart for each task "
        f"and seed, thinking helps in {_of_results(whole)}{own} (McNemar's test at 5 % on the test rows of each, not "
        "corrected for their number)."
    )


def _of_results(verdicts: Sequence[str]) -> str:
    return f"{verdicts.count(HELPS)} of {len(verdicts)} results and harms in {verdicts.count(HARMS)}"


def variations_sentence(found: Sequence[Compared]) -> str:
    """How many variations of the paper's setting tell labels apart better, before and after Holm's correction."""
    p_values = adjusted(found)
    better = [each.name for each in found if "pairs" in each.differences and each.differences["pairs"].interval[0] > 0]
    left = [name for name in better if p_values[name, "pairs"] < ALPHA]
    return (
        f"Of {len(found)} [variations of this setting](#what-else-was-varied), {len(better)} raise that area by their "
        f"own intervals, and {len(left) or 'none'} after a correction for the number of comparisons."
    )


def of_thinking(found: Sequence[Compared]) -> str:
    """What is left of the lines of thinking when Holm's correction is over their entries alone."""
    own = [each for each in found if each.thinks]
    p_values = adjusted(own)
    left = []
    for each in own:
        moved = [
            f"*{name}* {in_unit(name, change.mean)}"
            for name, change in each.differences.items()
            if p_values[each.name, name] < ALPHA
        ]
        left += [f"{short_name(each.name)} ({', '.join(moved)})"] * bool(moved)
    corrected_for = f"the {len(p_values)} entries of the {counted(len(own), 'line')} of thinking alone"
    return f"After Holm's correction over {corrected_for} is left: {'; '.join(left) or 'nothing'}."


def in_unit(measure: str, mean: float) -> str:
    """A mean difference of a measure, with its sign: in nats for log p, otherwise in points."""
    return f"{mean:+.2f}".replace("-0.00", "0.00").replace("+0.00", "0.00") if measure == "log p" else points(mean)


def tasks_sentence(chosen: pd.DataFrame) -> str:
    """On which tasks single runs are helped and harmed."""
    parts = []
    for task, rows in chosen.groupby("task", observed=True):
        each = summary(rows)
        parts.append(f"{TASK_NAMES.get(task, task)} {each.helps} / {each.harms} / {each.same}")
    return f"By task, runs helped / harmed / without a difference shown: {'; '.join(parts)}."


def balance_sentence(chosen: pd.DataFrame) -> str:
    """What batch calibration does to T = 1, in the mean of the tasks and on each."""
    firsts = chosen[chosen["setting"] == chosen["setting"].iloc[0]]["before"]
    pairs = [
        Pair(str(row["task"]), int(row["seed"]), row["scores"], corrected(row["scores"]), None, None) for row in firsts
    ]
    of_tasks = {
        task: [pair for pair in pairs if pair.task == task] for task in dict.fromkeys(each.task for each in pairs)
    }
    parts = [
        f"{TASK_NAMES.get(task, task)} {with_interval(compare(own, 'accuracy'))}" for task, own in of_tasks.items()
    ]
    return (
        "Batch calibration assumes that labels are about equally frequent. It changes T = 1 by "
        f"{with_interval(compare(pairs, 'accuracy'))} in the mean: {', '.join(parts)}."
    )


def predictors_sentence(found: Sequence[Correlation]) -> str:
    """What goes along with a gain: the predictors whose interval does not contain zero, or whose p is small."""
    if not any(each.interval for each in found):
        return "There are too few runs to say what goes along with a gain."
    telling = {each.name: each.overall for each in found if each.interval and each.interval[0] * each.interval[1] > 0}
    inside = {each.name: each.within for each in found if each.within_p is not None and each.within_p < ALPHA}
    return (
        f"Rank correlations with the gain whose interval excludes zero, of {len(found)} predictors over all runs: "
        f"{_strongest(telling)}; with p below {100 * ALPHA:.0f} % among the seeds of one task and setting alone: "
        f"{_strongest(inside)}. Neither list is corrected for the number of predictors."
    )


def _strongest(found: Mapping[str, float]) -> str:
    """Predictors with their correlations, the strongest first."""
    ordered = sorted(found, key=lambda name: -abs(found[name]))
    return "; ".join(f"{short_name(PREDICTORS[name])} ({found[name]:+.2f})" for name in ordered) or "none of them"


def repeats_sentence(found: Sequence[Repeats]) -> str:
    """Whether repeating the demonstrations gives the same as thinking."""
    of_paper = [each for each in found if (each.setting, each.eta) == PAPER]
    found = [each for each in found if each not in of_paper]
    if not found:
        return "That repeating the demonstrations gives the same is not tested yet."
    repeating, thinking, between, calibrated, closer = _beside_repeating(found)
    same = between.interval is not None and max(map(abs, between.interval)) < SMALL
    verdict = {
        1: "does not give the same: by the model's scores thinking is better",
        -1: "does not give the same: by the model's scores repeating is better",
        0: f"gives the same accuracy within {100 * SMALL:.0f} points"
        if same
        else "is not shown to differ in accuracy, nor to be the same",
    }[between.sign]
    toward = {1: "agrees more", -1: "agrees less", 0: "is not shown to agree more or less"}[closer.sign]
    tasks, seeds = list(dict.fromkeys(each.task for each in found)), {seed for each in found for seed in each.seeds}
    etas = ", ".join(dict.fromkeys(f"{each.setting} {each.eta:g}" for each in found))
    return (
        f"Repeating the demonstrations in one prompt, on {names(tasks)} with {counted(len(seeds), 'seed')} and beside "
        f"the largest eta of every setting ({etas}), {verdict} (repeating "
        f"{with_interval(repeating)}, thinking {with_interval(thinking)}, thinking minus repeating "
        f"{with_interval(between)}). After batch calibration of both, {_shown(calibrated)} (thinking minus repeating "
        f"{with_interval(calibrated)}). Input by input, thinking {toward} with the labels of repetition than T = 1 "
        f"does ({with_interval(closer)})." + _of_paper(of_paper)
    )


def _of_paper(found: Sequence[Repeats]) -> str:
    """The same for the paper's setting alone."""
    if not found:
        return ""
    _, thinking, between, calibrated, closer = map(with_interval, _beside_repeating(found))
    return (
        f" In the paper's setting thinking changes accuracy by {thinking}; thinking minus repeating is {between}, and "
        f"after batch calibration of both {calibrated}; agreement with the labels of repetition changes by {closer}."
    )


def _beside_repeating(found: Sequence[Repeats]) -> list[Estimate]:
    """Repeating and thinking minus T = 1, thinking minus repeating, the same calibrated, and the agreement."""
    return [
        _pooled([(each.task, each.seeds, getattr(each, name).gains) for each in found])
        for name in ("repeating", "thinking", "between", "calibrated", "agreement")
    ]


def _shown(difference: Estimate) -> str:
    return {1: "thinking is better", -1: "repeating is better", 0: "no difference is shown"}[difference.sign]


def _pooled(gains: Iterable[tuple[str, Sequence[int], Floats]]) -> Estimate:
    """The estimate of values [seeds, rows] of tasks and seeds."""
    rows = [
        ((task, seed), values) for task, seeds, of_task in gains for seed, values in zip(seeds, of_task, strict=True)
    ]
    return estimate([values for _, values in rows], [pair for pair, _ in rows])


def flipped_sentence(found: Sequence[Flipped]) -> str:
    """Whether exchanged label words are learned, and whether thinking helps with it."""
    if not found:
        return "That exchanged label words are not learned is not tested yet."
    before, after = (np.concatenate([getattr(each.calibrated, side) for each in found]) for side in ("before", "after"))
    clusters = [(each.task, seed) for each in found for seed in each.seeds]
    first, later = (estimate(values - 0.5, clusters) for values in (before, after))
    change = _pooled([(each.task, each.seeds, each.calibrated.gains) for each in found])
    words = {1: "are followed", -1: "are not followed", 0: "are neither followed nor rejected"}
    again = "" if later.sign == first.sign else f" {words[later.sign]}"
    return (
        f"Exchanged label words {words[first.sign]} at T = 1 ({percent(0.5 + first.mean)} of the answers follow the "
        f"demonstrations, after batch calibration) and{again} over T > 1 ({percent(0.5 + later.mean)}); "
        f"thinking changes that by {with_interval(change)}." + _beside_control(found)
    )


def _beside_control(found: Sequence[Flipped]) -> str:
    """How much more often thinking gives the same wrong words when the demonstrations do not have them."""
    known = [(each.task, each.seeds, each.control.gains, each.calibrated.gains) for each in found if each.control]
    if not known:
        return ""
    usual = _pooled([(task, seeds, control) for task, seeds, control, _ in known])
    beyond = _pooled([(task, seeds, gains - control) for task, seeds, control, gains in known])
    verdict = {
        1: "so thinking follows exchanged words",
        0: "so it is not shown that thinking follows them: it gives more wrong words in any case"
        if usual.sign > 0
        else "so it is not shown that thinking follows them",
        -1: "so thinking follows exchanged words less than it errs anyhow",
    }[beyond.sign]
    return (
        f" The same wrong words, after demonstrations with the right ones, change by {with_interval(usual)}; the "
        f"difference of the two is {with_interval(beyond)}, {verdict}."
    )
