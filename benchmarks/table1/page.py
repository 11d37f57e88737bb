"""docs/table1.md: every method alone and followed by thinking, raw and corrected, from the tables of `table1/`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

from benchmarks.evidence.statistics import cluster_interval
from deepthink_cli.experiments.results import FILE
from deepthink_cli.report.arms import Arm
from deepthink_cli.report.job_results import JobResults, read_jobs
from deepthink_cli.report.ranking import FEWEST_BLOCKS, Ranking, draw_ranking, rank
from deepthink_cli.report.tables import scores_of

from .runs import BASELINE, SELECTING, TASKS, TECHNIQUES

NAMES = {"sst2": "SST-2", "sst5": "SST-5", "trec": "TREC", "mr": "MR", "agnews": "AG News"}
KINDS = ("plain", "thinking", "plain batch", "thinking batch")  # at T = 1 and at T by dev, raw and then corrected
RANKED = {"": "Raw scores", " batch": "After batch calibration"}  # by the suffix of a kind
COSTS, RIVALS = "costs.jsonl", "rivals.jsonl"  # of a model, beside its runs
METHODS = [name for methods in SELECTING.values() for name in methods]
METHODS += [name for names in TECHNIQUES.values() for name in names.split(",")]
NOTHING = "Nothing has been run for this yet."


@dataclass(frozen=True, eq=False)
class Model:
    """The results of one model: a line for each method, task and seed, with an accuracy for each of `KINDS`."""

    name: str
    jobs: list[JobResults]
    costs: list[dict[str, Any]]
    rivals: list[dict[str, Any]]

    @cached_property
    def accuracies(self) -> pd.DataFrame:
        """Columns `method`, `task`, `seed` and those of `KINDS`; only what has all four."""
        lines: dict[tuple[str, str, int], dict[str, float]] = {}
        for each in scores_of(self.jobs, None):
            arm, score = each.arm, each.score
            line = lines.setdefault((_method(arm), each.task, each.seed.number), {})
            suffix = f" {arm.calibration}" if arm.calibration else ""
            line[f"plain{suffix}"] = math.nan if arm.is_compared_with_plain else score.plain
            line[f"thinking{suffix}"] = score.thinking
        rows = [
            {"method": method, "task": task, "seed": seed, **line}
            for (method, task, seed), line in lines.items()
            if set(KINDS) <= set(line)
        ]
        return pd.DataFrame(rows, columns=["method", "task", "seed", *KINDS])

    def differences(self, before: tuple[str, str], after: tuple[str, str]) -> pd.Series:
        """The differences by task and seed between two (method, kind); of all methods if the names are empty."""
        left, right = (self.accuracies_of(*side) for side in (before, after))
        return (right - left).dropna()

    def accuracies_of(self, method: str, kind: str) -> pd.Series:
        """The accuracies of a method by task and seed, or of all methods if the name is empty."""
        table = self.accuracies
        chosen = table[table["method"] == method] if method else table
        keys = ["task", "seed"] if method else ["task", "seed", "method"]
        return chosen.set_index(keys)[kind]

    @cached_property
    def complete(self) -> list[str]:
        """The methods that have every task and seed that random demonstrations have."""
        counts = self.accuracies.groupby("method").size()
        return [str(name) for name in counts.index if counts[name] == counts.get(BASELINE)]

    def ranking(self, suffix: str) -> Ranking | str:
        """The complete methods as in the paper's table: choices at T = 1, techniques, and Deep-Thinking after random.

        `suffix` is that of the scores in `KINDS`.
        """
        table = self.accuracies.set_index(["task", "seed"]).sort_index()
        by_method = {name: rows for name, rows in table.groupby("method") if name in self.complete}
        values = {
            str(name): rows[f"plain{suffix}"] if rows["plain"].notna().all() else rows[f"thinking{suffix}"]
            for name, rows in by_method.items()
        }
        if BASELINE in by_method:
            values["Deep-Thinking"] = by_method[BASELINE][f"thinking{suffix}"]
        return rank({name: list(accuracies) for name, accuracies in values.items()})


def read_models(folder: Path) -> list[Model]:
    """The models of `folder/MODEL/RUN/results.jsonl`, in alphabetical order."""
    models = []
    for path in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        runs = sorted(file.parent for file in path.glob(f"*/{FILE}") if file.stat().st_size)
        if runs:
            models.append(Model(path.name, read_jobs(runs), *(_lines(path / name) for name in (COSTS, RIVALS))))
    return models


def _lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines, which may be missing."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def page(models: Sequence[Model], figures: Path) -> str:
    """The whole page; draws a diagram for every model that can be ranked."""
    parts = [TOP]
    for model in models:
        parts += [f"## {model.name}", *_sentences(model), _table(model), *_missing(model), *_rivals(model)]
        parts += [*_ranked(model, figures), *_costs(model)]
    return "\n\n".join(parts if models else [*parts, NOTHING]) + "\n"


TOP = """\
<!-- Generated by `make table1` from the tables of table1/; edit benchmarks/table1/. -->

# Table 1 in one harness

The paper's Table 1 sets Deep-Thinking against eleven ways of choosing demonstrations whose figures come from another
program, with other prompts and test rows ([what is known to differ](reproduce.md#what-is-known-to-differ)). Here every
[method](choose.md#methods) chooses its demonstrations from the same seeded pool of 1,000 training rows, and all, some
[techniques](think.md#other-techniques) among them, are evaluated on the same sampled test rows, with the same prompts,
scorer and seeds: at T = 1, which is plain in-context learning with those demonstrations, and at the T that dev rows
choose from 1, 2, 4 and 8 (eta 0.1, restarted positions); with raw scores and after [batch
calibration](predict.md#calibration).

Everything is computed in float32, so that the rows of a GPU and of a processor agree to rounding. Of SmolLM2, those of
LENS and influence were made on a GPU, the others on a processor; random demonstrations of seed 0 were evaluated on
both, and no answer differed.

    python -m benchmarks.table1.runs --model MODEL --data-dir DIR -o table1/NAME
    python -m benchmarks.table1.costs --model MODEL --data-dir DIR -o table1/NAME/costs.jsonl
    python -m benchmarks.table1.rivals --model MODEL --data-dir DIR -o table1/NAME/rivals.jsonl
    make table1

The first three continue from the model's results in `table1/NAME.parquet` and extend them;
`python -m benchmarks.packing unpack table1/NAME` writes their folders, for `deepthink report table1/NAME/*/`."""


def _method(arm: Arm) -> str:
    """The name of a method in the tables: the choice or the technique."""
    return str(arm.sampling) if arm.technique is None else arm.technique.partition(" ")[0]


def _sentences(model: Model) -> list[str]:
    """What the table says: of selection, of thinking and of the correction."""
    table = model.accuracies
    pairs = len(table[table["method"] == BASELINE])
    if pairs < FEWEST_BLOCKS or len(model.complete) < 2:
        return [
            f"Random demonstrations have {pairs} pairs of a task and a seed so far: too few to say what the table says."
        ]
    raw_values = table.groupby("method")["plain"].count()  # techniques have none
    others = [name for name in model.complete if name != BASELINE and raw_values[name]]
    gains = {name: model.differences((BASELINE, "plain"), (name, "plain")) for name in others}
    best = max(others, key=lambda name: float(gains[name].mean()))
    above = sum(bool(gain.mean() > 0) for gain in gains.values())
    raw, corrected, correction = (
        _difference(model.differences(("", before), ("", after)))
        for before, after in (("plain", "thinking"), ("plain batch", "thinking batch"), ("plain", "plain batch"))
    )
    return [
        f"At T = 1 with raw scores, the best of {len(others)} other methods is {best}, with {_difference(gains[best])} "
        f"against random demonstrations; {above} of {len(others)} are above random. Over all methods, tasks and seeds, "
        f"thinking with T chosen on dev rows changes accuracy by {raw} with raw scores and by {corrected} after batch "
        f"calibration. Calibration alone changes T = 1 by {correction}."
    ]


def _difference(values: pd.Series) -> str:
    """The mean in percentage points, with its 95 % interval over pairs of a task and a seed."""
    numbers = values.to_numpy()
    clusters = [key[:2] for key in values.index]
    interval = cluster_interval(clusters, lambda places: float(numbers[places].mean()))
    ends = "" if interval is None else f" [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"
    return f"{100 * numbers.mean():+.1f} points{ends}"


def _table(model: Model) -> str:
    """Accuracy in percent of every method by task: T = 1 and T, raw, then corrected; means over seeds."""
    table = model.accuracies
    tasks = [task for task in TASKS if task in set(table["task"])]
    lines = [
        "| method | seeds | " + " | ".join(NAMES[task] for task in tasks) + " | mean |",
        "|---|--:|" + "--:|" * (len(tasks) + 1),
    ]
    means = table.groupby(["method", "task"])[list(KINDS)].mean()
    for method in sorted(set(table["method"]), key=METHODS.index):
        cells = [_cell(means, (method, task)) for task in tasks]
        seeds = table[table["method"] == method].groupby("task").size()
        whole = means.loc[method].reindex(tasks).mean(skipna=False)
        lines.append(f"| {method} | {_range(seeds)} | " + " | ".join(cells) + f" | {_numbers(whole)} |")
    words = (
        "Accuracy in percent, mean over seeds. Each cell has T = 1 / T chosen on dev rows, then the same two after "
        "batch calibration. Techniques (the rows with –) start from the random demonstrations; ct-kv makes one memory, "
        "not one for each T."
    )
    return words + "\n\n" + "\n".join(lines)


def _missing(model: Model) -> Iterator[str]:
    """The methods that have not been run on a model."""
    table = model.accuracies
    run = set(table["method"])
    missing = dict.fromkeys(method for methods in SELECTING.values() for method in methods if method not in run)
    if missing:
        yield f"Not run yet on this model: {', '.join(missing)}."
    partial = [f"{name} ({len(rows)})" for name, rows in table.groupby("method") if name not in model.complete]
    if partial:
        yield f"Not all pairs of a task and a seed have been run yet for: {', '.join(partial)}."


def _cell(means: pd.DataFrame, key: tuple[str, str]) -> str:
    return _numbers(means.loc[key]) if key in means.index else ""


def _numbers(values: Mapping[str, float]) -> str:
    if pd.isna(values["thinking"]):
        return ""
    shown = {kind: "–" if pd.isna(values[kind]) else f"{100 * values[kind]:.1f}" for kind in KINDS}
    return "{plain} / {thinking}; {plain batch} / {thinking batch}".format_map(shown)


def _range(counts: pd.Series) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _rivals(model: Model) -> Iterator[str]:
    """What classifiers without in-context learning reach with the same labels, and the sentence that follows."""
    if not model.rivals:
        return
    table = pd.DataFrame(model.rivals)
    table["accuracy"] = table["right"] / table["n"]
    tasks = [task for task in TASKS if task in set(table["task"])]
    header = " | ".join(NAMES[task] for task in tasks)
    lines = [
        f"| classifier | trained on | labels | seeds | {header} | mean |",
        "|---|---|--:|" + "--:|" * (len(tasks) + 2),
    ]
    for (classifier, trained_on), rows in table.groupby(["classifier", "trained_on"], sort=False):
        means = rows.groupby("task")["accuracy"].mean().reindex(tasks)
        cells = " | ".join("" if pd.isna(mean) else f"{100 * mean:.1f}" for mean in means)
        whole = means.mean(skipna=False)
        shown = "" if pd.isna(whole) else f"{100 * whole:.1f}"
        labels, seeds = _range(rows["labels"]), _range(rows.groupby("task").size())
        lines.append(f"| {classifier} | {trained_on} | {labels} | {seeds} | {cells} | {shown} |")
    yield RIVALS_WORDS + "".join(f" {sentence}" for sentence in _against_rivals(model, table))
    yield "\n".join(lines)


RIVALS_WORDS = (
    "Logistic regression without in-context learning, on the same test rows: on TF-IDF weights of words, which needs "
    "no model, and on the mean of the model's last hidden states over an input's tokens. Trained on the random "
    "demonstrations, whose labels every row of the table above sees that starts from them; and on these and the dev "
    "rows, whose labels every choice of T sees. Methods that try demonstrations, such as random-valid, LENS and "
    "influence, see labels of the pool beyond these."
)


def _against_rivals(model: Model, table: pd.DataFrame) -> Iterator[str]:
    """How far random demonstrations are above each classifier that sees the same labels."""
    seen = {"plain batch": "demonstrations", "thinking batch": "demonstrations and dev rows"}
    words = {"plain batch": "T = 1", "thinking batch": "T chosen on dev rows"}
    for kind, trained_on in seen.items():
        rows = table[table["trained_on"] == trained_on].groupby(["classifier", "task", "seed"])["accuracy"].mean()
        by_classifier = {name: rows[name] for name in rows.index.get_level_values(0).unique()}
        known = {
            name: (model.accuracies_of(BASELINE, kind) - values).dropna() for name, values in by_classifier.items()
        }
        differences = "; ".join(f"{_difference(gain)} against {name}" for name, gain in known.items() if len(gain))
        if differences:
            yield f"Random demonstrations with {words[kind]}, after batch calibration: {differences}."


def _ranked(model: Model, figures: Path) -> Iterator[str]:
    for suffix, words in RANKED.items():
        ranking = model.ranking(suffix)
        if isinstance(ranking, str):
            yield f"Ranking: {ranking}."
            return
        name = f"{PurePath(model.name).name}{suffix.replace(' ', '-')}.png"
        draw_ranking(ranking, {figures / name: ".png"})
        yield (
            f"{words}, mean ranks over {ranking.blocks} pairs of a task and a seed: the methods that choose or order "
            "demonstrations at T = 1, the techniques, and Deep-Thinking after random demonstrations with T chosen on "
            "dev rows. Bars join those that do not differ at the 5 % level (Nemenyi)."
        )
        yield f"![Critical-difference diagram, {words.lower()}](table1/{name})"


def _costs(model: Model) -> Iterator[str]:
    baseline = next((cost["process_seconds"] for cost in model.costs if cost["method"] == BASELINE), None)
    if baseline is None:
        return
    lines = ["| method | rows observed | sets read | inputs scored after sets | seconds |", "|---|--:|--:|--:|--:|"]
    for cost in model.costs:
        numbers = " | ".join(f"{cost[name]:,}" for name in ("observed", "sets", "scored"))
        seconds = cost["process_seconds"] - baseline
        lines.append(f"| {cost['method']} | {numbers} | {max(0, seconds):,.0f} |")
    yield (
        "Cost of choosing 8 of 1,000 rows of SST-2 with an empty cache: what the model reads, and seconds on one "
        f"thread of a processor beyond those of {BASELINE}, which only loads the model and reads the rows."
    )
    yield "\n".join(lines)
    measured = {cost["method"] for cost in model.costs}
    missing = dict.fromkeys(method for methods in SELECTING.values() for method in methods if method not in measured)
    if missing:
        yield f"Not measured yet: {', '.join(missing)}."
