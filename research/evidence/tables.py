"""The tables of docs/evidence.md, in Markdown, and all cells as CSV."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from deepthink_cli.evaluation.metrics import ALPHA
from research.table1.runs import TASKS

from .cells import HARMS, HELPS, Comparison, compare_chosen
from .claims import Claim
from .controls import Flipped, Repeats
from .discrimination import MEASURES, NEEDS_DEV, Compared, Difference, adjusted, compare, without_dev
from .findings import in_unit, interval, points, shown, signed
from .load import TASK_NAMES, named
from .pooled import estimate, summary
from .predictors import PREDICTORS, Correlation

PAIRS = "task-seed pairs"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], text: int = 1) -> str:
    """A Markdown table whose first `text` columns are aligned left, the others right."""
    marks = ["---"] * text + ["--:"] * (len(headings) - text)
    lines = [headings, marks, *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def discrimination(found: Sequence[Compared]) -> str:
    """T = 1 by every measure, and what changes it by how much; bold where Holm's p over the table is below 5 %."""
    p_values, first = adjusted(found), found[0].differences
    levels = [_level(name, first[name].before) if name in first and name != "matched" else "" for name in MEASURES]
    lines: list[list[object]] = [["T = 1", "", "", "", *levels]]
    for each in found:
        cells = [_change(name, each.differences.get(name), p_values.get((each.name, name))) for name in MEASURES]
        labels = f"up to {each.labels}" if "random-valid" in each.name else each.labels
        lines.append([each.name, labels, _cells(each), _percent(each.differences["accuracy"].before), *cells])
    return table(["", "more labels", PAIRS, "starts from", *MEASURES], lines)


def varied(found: Sequence[Compared]) -> str:
    """Accuracy at T = 1, and what thinking changes, in every variation; bold as in the table of discrimination."""
    p_values, names = adjusted(found), [name for name in MEASURES if name not in NEEDS_DEV]
    lines = []
    for each in found:
        cells = [_change(name, each.differences.get(name), p_values.get((each.name, name))) for name in names]
        lines.append([each.name, _cells(each), _percent(each.differences["accuracy"].before), *cells])
    return table(["", PAIRS, "T = 1", *names], lines)


def _cells(each: Compared) -> str:
    """How many task-seed pairs are compared, with the tasks if some are missing."""
    tasks = {task for task, _ in each.cells}
    missing = "" if len(tasks) == len(TASKS) else f" ({named(tasks)})"
    return f"{len(each.cells)}{missing}"


def costs(commands: Sequence[dict[str, Any]]) -> str:
    """The commands of each folder that ended well, where they ran, and the hours that they took.

    Hours are those of a core (`processor_seconds`), of a GPU those of the clock (`seconds`).
    """
    rows = [
        (line["folder"], line.get("GPU", line["processor"]), line.get("seconds", line.get("processor_seconds")))
        for line in commands
        if line["status"] == 0
    ]
    groups = pd.DataFrame(rows, columns=["folder", "device", "seconds"]).groupby(["folder", "device"], sort=False)
    lines = [
        [folder, device, len(of_folder), f"{of_folder['seconds'].sum() / 3600:.1f}"]
        for (folder, device), of_folder in groups
    ]
    return table(["folder", "device", "commands", "hours"], lines, 2)


def tuned(lines: Sequence[dict[str, Any]]) -> str:
    """What `tune` chose for each task, its own estimate, and the accuracy on test rows."""
    rows = []
    for line in lines:
        nested, test = line["nested"], line["test"]
        rival = max(line["rivals"], key=lambda each: float(each["accuracy"]), default=None)
        rows.append(
            [
                TASK_NAMES.get(line["task"], line["task"]),
                f"{line['budget'].removesuffix('m')} min",
                chosen_words(line["choice"]),
                "yes" if line["difference_beyond_noise"] else "no",
                _percent(nested["plain"]),
                f"{_percent(nested['accuracy'])} [{' to '.join(map(_percent, nested['ci95']))}] "
                f"({points(nested['difference'])})",
                _p(nested["p"]),
                "" if rival is None else f"{_percent(rival['accuracy'])} ({rival['name'].partition(',')[0]})",
                _percent(test["uncorrected"]),
                _percent(test["accuracy"]),
                "; ".join(line["not_tried"]),
            ]
        )
    headings = [
        "task",
        "budget",
        "choice",
        "beyond noise",
        "plain",
        "nested",
        "p",
        "best rival",
        "test: uncorrected",
        "test",
        "not tried",
    ]
    return table(headings, rows, 4)


def chosen_words(choice: dict[str, Any]) -> str:
    """A setting that `tune` chose, as in `T = 1, domain`."""
    technique, calibration = choice["technique"], choice["calibration"]
    eta = "" if choice["eta"] is None else f", eta {choice['eta']:g}"
    name = "" if technique == "deep-thinking" else f"`{technique}`, "
    return f"{name}T = {choice['iterations']}{eta}" + ("" if calibration == "none" else f", `{calibration}`")


def claims_table(found: Iterable[Claim]) -> str:
    """Every claim with the paper's figure and ours."""
    lines = [[each.words, each.paper, each.found.holds, each.found.figures, each.differs] for each in found]
    return table(["claim", "the paper", "holds here", "figures here", "what differs here"], lines, 5)


def _level(name: str, value: float) -> str:
    return f"{value:.2f}" if name == "log p" else _percent(value)


def _change(name: str, change: Difference | None, p: float | None) -> str:
    """A difference and its interval, which is left out where nothing differs; empty where it is not known."""
    if change is None or p is None:
        return ""
    if change.interval[0] == change.interval[1]:
        return "0"
    first = in_unit(name, change.mean)
    ends = " to ".join(signed(end, 2) for end in change.interval) if name == "log p" else interval(change.interval)
    return f"{f'**{first}**' if p < ALPHA else first} [{ends}]"


def by_setting(chosen: pd.DataFrame) -> str:
    """Every setting over all its tasks and seeds."""
    lines = []
    for name, rows in chosen.groupby("setting", observed=True):
        each = summary(rows)
        gain, calibrated = (
            compare(without_dev(rows["before"], rows[after]), measure)
            for after, measure in (("after", "accuracy"), ("calibrated_after", "batch"))
        )
        counts = f"{each.helps} / {each.harms} / {each.same}"
        lines.append([name, each.runs, *_sides(gain), _percent(each.oracle), counts, each.kept_first])
        lines[-1] += _sides(calibrated)
    headings = [
        "setting",
        "runs",
        "T = 1",
        "chosen",
        "difference",
        "oracle",
        "helps / harms / neither",
        "runs where T = 1 was chosen",
    ]
    return table([*headings, "batch: T = 1", "batch: chosen", "batch: difference"], lines)


def by_task(chosen: pd.DataFrame) -> str:
    """Every task and setting over its seeds."""
    lines = []
    for (task, setting), rows in chosen.groupby(["task", "setting"], observed=True):
        raw, calibrated = compare_chosen(rows), compare_chosen(rows, calibrated=True)
        true = [statistics.fmean(row["true"] for row in rows[column]) for column in ("before", "after")]
        lines.append(
            [
                TASK_NAMES.get(task, task),
                setting,
                len(rows),
                _middle([int(t) for t in rows["t"]]),
                _middle(list(rows["eta"])),
                *_accuracies(raw),
                points(raw.mean),
                interval(raw.interval),
                _p(raw.p),
                f"{raw.better} / {raw.worse}",
                _percent(rows["oracle"].mean()),
                f"{true[0]:.2f}",
                f"{true[1]:.2f}",
                *_accuracies(calibrated),
                points(calibrated.mean),
            ]
        )
    headings = [
        "task",
        "setting",
        "seeds",
        "T",
        "eta",
        "T = 1",
        "chosen",
        "difference",
        "95 % interval",
        "p",
        "seeds better / worse",
    ]
    more = ["oracle", "log p: T = 1", "log p: chosen", "batch: T = 1", "batch: chosen", "batch: difference"]
    return table([*headings, *more], lines, 2)


def over_t(every: pd.DataFrame) -> str:
    """For every setting and eta the difference from T = 1 at each T over all tasks and seeds, raw and calibrated."""
    iterations = sorted(set(every["t"]))
    lines = []
    for (setting, eta), rows in every.groupby(["setting", "eta"], observed=True):
        for column, name, measure in (("raw", "raw", "accuracy"), ("calibrated", "batch", "batch")):
            cells = [_over_tasks(rows[rows["t"] == t], measure) for t in iterations]
            verdicts = [verdict for comparison in rows[column] for verdict in comparison.verdicts]
            counts = f"{verdicts.count(HELPS)} / {verdicts.count(HARMS)} of {len(verdicts)}"
            lines.append([setting, f"{eta:g}", name, *cells, counts])
    return table(["setting", "eta", "scores", *(f"T = {t}" for t in iterations), "helps / harms"], lines, 3)


def correlation_table(found: Sequence[Correlation]) -> str:
    """Every predictor's rank correlation with the gain."""
    lines = [[PREDICTORS[each.name], each.n, each.pairs, *_both(each)] for each in found]
    headings = ["goes along with the gain", "runs with one eta", PAIRS, "Spearman", "95 % interval"]
    return table([*headings, "within task and setting", "p"], lines)


def distributions(every: pd.DataFrame) -> str:
    """The largest label share and the distance from the true labels at T = 1 and at the last T, by setting and eta."""
    lines = []
    last = max(every["t"])
    for (setting, eta), rows in every[every["t"] == last].groupby(["setting", "eta"], observed=True):
        first, final = pd.concat(list(rows["first"])), pd.concat(list(rows["last"]))
        moved = estimate(
            final["from_true"].to_numpy() - first["from_true"].to_numpy(),
            list(zip(final["task"], final.index, strict=True)),
        )
        shares = [_percent(each["largest"].mean()) for each in (first, final)]
        distances = [f"{100 * each['from_true'].mean():.1f}" for each in (first, final)]
        lines.append([setting, f"{eta:g}", len(final), *shares, *distances, shown(moved)])
    headings = [
        "setting",
        "eta",
        PAIRS,
        "largest share, T = 1",
        f"largest share, T = {last}",
        "distance from the true labels, T = 1",
    ]
    return table([*headings, f"distance, T = {last}", "change"], lines, 2)


def repeats_table(found: Sequence[Repeats]) -> str:
    """Repetition beside thinking: a row for each task and number of repetitions, a column for each setting."""
    settings = list(dict.fromkeys((each.setting, each.eta) for each in found))
    lines = []
    for task, times in dict.fromkeys((each.task, each.times) for each in found):
        here = {(each.setting, each.eta): each for each in found if (each.task, each.times) == (task, times)}
        first = next(iter(here.values()))
        accuracies = _accuracies(first.repeating)
        cells = [_thinking(here[setting]) if setting in here else "" for setting in settings]
        same = _percent(statistics.fmean(first.agreement.before))
        lines.append([TASK_NAMES.get(task, task), times, len(first.seeds), *accuracies, same, *cells])
    headings = ["task", "times", "seeds", "T = 1", "repeated", "same label as T = 1"]
    return table([*headings, *(f"{setting}, eta {eta:g}" for setting, eta in settings)], lines)


def _thinking(each: Repeats) -> str:
    accuracy, same = statistics.fmean(each.thinking.after), statistics.fmean(each.agreement.after)
    return f"{_percent(accuracy)} at T = {each.t} ({_percent(same)} same)"


def flipped_table(found: Sequence[Flipped]) -> str:
    """How many answers follow exchanged label words, for every task, setting and T."""
    lines = []
    for each in found:
        cell = [TASK_NAMES.get(each.task, each.task), each.setting, f"{each.eta:g}", each.t, len(each.seeds)]
        change = [points(each.calibrated.mean), interval(each.calibrated.interval)]
        change.append("" if each.control is None else points(each.control.mean))
        lines.append([*cell, *_accuracies(each.raw), points(each.raw.mean), *_accuracies(each.calibrated), *change])
    headings = ["task", "setting", "eta", "T", "seeds", "T = 1", "this T", "difference", "batch: T = 1"]
    return table([*headings, "batch: this T", "batch: difference", "95 % interval", "control"], lines, 2)


def all_cells(every: pd.DataFrame) -> str:
    """Every task, setting, eta and T > 1 as CSV; shares are in [0, 1], log-probabilities in nats."""
    lines = []
    for cell in every.itertuples():
        raw, calibrated = cell.raw, cell.calibrated
        low, high = raw.interval or (None, None)
        lines.append(
            {"task": cell.task, "setting": cell.setting, "eta": cell.eta, "t": cell.t, "seeds": cell.seeds}
            | {"plain": statistics.fmean(raw.before), "thinking": statistics.fmean(raw.after)}
            | {"difference": raw.mean, "low": low, "high": high, "p": raw.p}
            | {"gained": raw.gained, "lost": raw.lost, "better": raw.better, "worse": raw.worse}
            | {"true_plain": cell.first["true"].mean(), "true_thinking": cell.last["true"].mean()}
            | {"calibrated_plain": statistics.fmean(calibrated.before)}
            | {"calibrated_thinking": statistics.fmean(calibrated.after), "calibrated_difference": calibrated.mean}
            | {"largest_plain": cell.first["largest"].mean(), "largest_thinking": cell.last["largest"].mean()}
            | {"from_true_plain": cell.first["from_true"].mean(), "from_true_thinking": cell.last["from_true"].mean()}
        )
    text: str = pd.DataFrame(lines).to_csv(index=False, float_format="%.5g", lineterminator="\n")
    return text


def _over_tasks(rows: pd.DataFrame, measure: str) -> str:
    pairs = [
        pair
        for first, last in zip(rows["first"], rows["last"], strict=True)
        for pair in without_dev(*([row for _, row in side.reset_index().iterrows()] for side in (first, last)))
    ]
    return shown(compare(pairs, measure)) if pairs else ""


def _sides(change: Difference) -> list[str]:
    return [_percent(change.before), _percent(change.after), shown(change)]


def _accuracies(comparison: Comparison) -> list[str]:
    return [_percent(statistics.fmean(values)) for values in (comparison.before, comparison.after)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _middle(numbers: Sequence[float]) -> str:
    """The lower median, and the range if the numbers differ."""
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{statistics.median_low(numbers):g} ({low:g} to {high:g})"


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _both(each: Correlation) -> list[str]:
    overall, within = (_correlation(value) for value in (each.overall, each.within))
    return [overall, _range(each.interval), within, _p(each.within_p)]


def _correlation(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.2f}"


def _range(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:+.2f} to {ends[1]:+.2f}"
