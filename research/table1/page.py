"""docs/table1.md: every method at T = 1 and with T by dev rows, raw and corrected, from `research/tables/table1/`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from deepthink_cli.evaluation.metrics import ALPHA
from deepthink_cli.experiments.results import FILE, Result, from_bits
from deepthink_cli.plugins.plots.figures import Dot, dots_figure
from deepthink_cli.report.arms import Arm
from deepthink_cli.report.job_results import JobResults, read_jobs
from deepthink_cli.report.ranking import FEWEST_BLOCKS
from deepthink_cli.report.style import COLUMN
from deepthink_cli.report.tables import TaskScore, scores_of
from research import encoding
from research.evidence.discrimination import Difference, difference, holm
from research.evidence.load import TASK_NAMES, stored_scores
from research.evidence.measures import Floats, predicted
from research.evidence.words import counted, points, with_interval
from research.style import MORE_LABELS, OWN_LABELS, THINKS, write

from .runs import BASELINE, DEV_ROWS, LABELS, MORE_ROWS, READ_ONCE, ROWS, SEEDS, SELECTING, TASKS, TECHNIQUES

KINDS = ("plain", "thinking", "plain batch", "thinking batch")  # at T = 1 and at T by dev, raw and then corrected
SCORES = {"plain": "raw scores", "plain batch": "batch-calibrated"}
COSTS, RIVALS = "costs.jsonl", "rivals.jsonl"  # of a model, beside its runs
CHOICES = list(dict.fromkeys(name for methods in SELECTING.values() for name in methods))
THINKING = "thinking"  # in the paper's setting, among the methods on more rows
METHODS = [*CHOICES, THINKING, *(name for names in TECHNIQUES.values() for name in names.split(","))]
ONCE = "read once"  # the cost from which those of techniques are counted
PASSES = ("observed", "sets", "scored")  # of a cost: texts that the model reads
POOLED, UNLABELLED = "T = 1, labels of the pool", "T = 1, own labels"
FIXED_T, CHOSEN_T = "T = 5, eta 0.01, own labels", f"eta 0.1, T by {DEV_ROWS} dev labels"  # of thinking
LOOKS = {UNLABELLED: OWN_LABELS, POOLED: MORE_LABELS, FIXED_T: THINKS, CHOSEN_T: THINKS}
PAPER_BEST = "graph-cut"  # of the paper's choices without dev labels
NO_REASON = "Nothing has been run for this yet."
Answers = dict[tuple[str, int], Floats]  # by task and seed: 1.0 for every test row that is labelled correctly [rows]


def nothing() -> pd.DataFrame:
    """A table of accuracies without lines."""
    return pd.DataFrame(columns=["method", "task", "seed", *KINDS])


@dataclass(frozen=True, eq=False)
class Model:
    """The results of one model: a line for each method, task and seed, with an accuracy for each of `KINDS`.

    `answers` has the same lines, with 1.0 for every test row that was labelled correctly and 0.0 for others [rows].
    `more` has the methods that were run on more rows, with the two of `KINDS` at T = 1; *thinking* is a method there.
    `more_gains` has what they change, for both of these kinds and by method. `unscored` are methods that have results
    without the scores of their rows.
    """

    name: str
    accuracies: pd.DataFrame
    costs: list[dict[str, Any]]
    rivals: list[dict[str, Any]]
    answers: pd.DataFrame = field(default_factory=nothing)
    more: pd.DataFrame = field(default_factory=nothing)
    more_gains: dict[str, dict[str, Difference]] = field(default_factory=dict)
    unscored: frozenset[str] = frozenset()

    def accuracies_of(self, method: str, kind: str) -> pd.Series:
        """The accuracies of a method by task and seed."""
        table = self.accuracies
        return table[table["method"] == method].set_index(["task", "seed"])[kind]

    def change(self, before: tuple[str, str], after: tuple[str, str]) -> Difference:
        """From one (method, kind) to another, on the tasks and seeds of both."""
        return between(self.answers_of([before[0]], before[1]), self.answers_of([after[0]], after[1]))

    def answers_of(self, methods: Sequence[str], kind: str) -> Answers:
        """The mean of what these methods answer."""
        rows = self.answers[self.answers["method"].isin(methods)]
        return {
            (str(task), int(seed)): np.mean(np.stack(of_pair[kind].tolist()), axis=0)
            for (task, seed), of_pair in rows.groupby(["task", "seed"])
        }

    def gains(self, methods: Sequence[str]) -> dict[str, dict[str, Difference]]:
        """What methods change beside random demonstrations, for both kinds of `SCORES` at T = 1, and by method."""
        return {kind: {name: self.change((BASELINE, kind), (name, kind)) for name in methods} for kind in SCORES}

    def is_among(self, files: Sequence[str]) -> bool:
        """Whether one of these files of models has its weights."""
        return any(file.startswith(self.name) for file in files)

    @cached_property
    def complete(self) -> list[str]:
        """The methods that have every task and seed that random demonstrations have."""
        counts = self.accuracies.groupby("method").size()
        return [str(name) for name in counts.index if counts[name] == counts.get(BASELINE)]

    @cached_property
    def scored(self) -> list[str]:
        """The complete methods whose results all have the scores of their rows, at every T and of dev rows."""
        return [name for name in self.complete if name not in self.unscored]


def between(first: Answers, last: Answers) -> Difference:
    """What changes from the first answers to the last, on the tasks and seeds of both."""
    pairs = [pair for pair in first if pair in last]
    of_tasks = [[pair for pair in pairs if pair[0] == task] for task in dict.fromkeys(task for task, _ in pairs)]
    return difference([(np.stack([first[p] for p in own]), np.stack([last[p] for p in own])) for own in of_tasks])


def read_models(folder: Path) -> list[Model]:
    """The models of `folder/MODEL/RUN/results.jsonl`, in alphabetical order."""
    models = []
    for path in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        runs = sorted(file.parent for file in path.glob(f"*/{FILE}") if file.stat().st_size)
        if runs:
            kept = (_lines(path / name) for name in (COSTS, RIVALS))
            samples = {file.stem.rpartition("-")[2]: file for file in path.glob("*/samples/*.parquet")}
            jobs = read_jobs(runs)
            answers = _answers(jobs, samples)
            accuracies = answers.assign(**{kind: answers[kind].map(np.mean) for kind in KINDS})
            unscored = frozenset(_method(job.arm) for job in jobs if any(r.key not in samples for r in _results(job)))
            models.append(Model(path.name, accuracies, *kept, answers, unscored=unscored))
    return models


def _results(job: JobResults) -> list[Result]:
    """The results of test rows, and those of dev rows, which choose T."""
    return [*job.test.values(), *job.dev.values()]


def _answers(jobs: Sequence[JobResults], samples: Mapping[str, Path]) -> pd.DataFrame:
    """Columns `method`, `task`, `seed` and those of `KINDS`, with 1.0 or 0.0 [rows]; only what has all four.

    `samples` are the files of scores by the key of their result.
    """
    lines: dict[tuple[str, str, int], dict[str, Floats]] = {}
    right = {result.key: _right(result, samples.get(result.key)) for job in jobs for result in _results(job)}

    def put(each: TaskScore, kind: str, result: Result) -> None:
        line = lines.setdefault((_method(each.arm), each.task, each.seed.number), {})
        line[f"{kind} {each.arm.calibration}" if each.arm.calibration else kind] = right[result.key]

    for each in scores_of(jobs, None):
        put(each, "thinking", each.comparison.result)
        if each.arm.technique is None and each.comparison.baseline is not None:
            put(each, "plain", each.comparison.baseline)
    for each in scores_of([job for job in jobs if job.arm.technique], 1):
        put(each, "plain", each.comparison.result)
    rows = [
        {"method": method, "task": task, "seed": seed, **line}
        for (method, task, seed), line in lines.items()
        if set(KINDS) <= set(line)
    ]
    return pd.DataFrame(rows, columns=["method", "task", "seed", *KINDS])


def _right(result: Result, file: Path | None) -> Floats:
    """1.0 for every row that is labelled correctly and 0.0 for others [rows].

    Raises SystemExit if the scores of the rows, where a file has them, do not give these answers.
    """
    right = result.was_right()
    if file is not None:
        scores = stored_scores(file, encoding.SCORES if result.setting.calibration is None else encoding.CALIBRATED)
        if (predicted(scores.logs) == scores.gold).tolist() != right:
            raise SystemExit(f"{file}: its scores do not give the answers of its result")
    return np.array(right, dtype=np.float64)


def _lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines, which may be missing."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def page(models: Sequence[Model], figures: Path) -> str:
    """The whole page; draws a figure for every model."""
    parts = [TOP]
    for model in models:
        parts += [
            f"## {model.name}",
            *_beside_paper(model),
            *_more(model, figures),
            ALL,
            *_sentences(model),
        ]
        parts += [*_drawn(model, figures), *_missing(model)]
        parts += ["#### At T = 1", *_first_readings(model), *_thinking(model), *_rivals(model)]
    return "\n\n".join(parts if models else [*parts, NO_REASON]) + "\n"


TOP = """\
<!-- Generated by `make table1` from research/tables/; edit research/table1/. -->

# Table 1 in one harness

Which examples (*demonstrations*) a language model reads before it labels an input decides much of how often it is
right. The paper's Table 1 compares ways of choosing them with Deep-Thinking, which reads random ones several times, but
takes the figures of the former from another program, with other prompts and test rows ([what is known to
differ](reproduce.md#what-is-known-to-differ)). On this page one program measures them all: the same models, prompts,
scorer, seeds and test rows.

Every [method](choose.md#methods) chooses from the same seeded pool of 1,000 training rows (of AG News, from a subset of
5,000). *Thinking* and the other [techniques](think.md#other-techniques) choose nothing, and differ in how random
demonstrations are read: *thinking* is Deep-Thinking in the paper's setting (T = 5, eta 0.01, continued positions),
repeat-2 reads them twice, ensemble-4 in four orders, composed each without the others, and ct-kv trains their
memory. Test rows are validation rows of SST-2, SST-5 and MR, and test rows of AG News
and TREC: 300 of each task for random demonstrations and ten methods, and 150 for all choices and three techniques. The
demonstrations are others than those of README.md and of the first lines of [Evidence](evidence.md). SmolLM2's weights
have 4 bits (GGUF Q4_1), and it is an instruct model that is read without its chat template. Figures are of the
[token ids of parts](concepts.md#tokens) (`--tokens parts`), not of the whole prompt, which is the default now.

Tables have accuracies in percent, means over seeds:

- *T = 1* is plain in-context learning with the chosen demonstrations, *T by dev rows* is chosen from 1, 2, 4 and 8 by
  the labels of 80 training rows (eta 0.1, restarted positions: not the paper's setting).
- *Batch calibration* [sees all test inputs](predict.md#calibration) and no label.
- *Labels* are those that a method sees beyond its demonstrations' own.
- *Passes* are the texts that the model reads for a choice; techniques choose nothing.
- *Seconds* are those of one processor core beyond random demonstrations that are read once: of a choice for 8 of 1,000
  rows of SST-2, of a technique for reading 8 rows and labelling one input. With many inputs ensemble-4 takes four times
  as long.

*Own labels* are those of the demonstrations alone, *labels of the pool* those of the rows to choose from; methods that
see the latter come last in every table, below a line of their own. Intervals, also those of the pictures, are at 95 %
and made as in the table of [Evidence](evidence.md). What is *shown* has p below 5 % after Holm's correction over
the methods. The figures of 300 rows were also
looked at after two, four, six and eight of the ten seeds, when more or fewer methods were shown to differ; graph-cut,
the paper's best choice, was added after that.

Everything is computed in float32, so that the rows of a GPU and of a processor agree to rounding. Of SmolLM2, the
results of LENS and influence were made on a GPU, the others on a processor. To keep the scores of the 150 rows, all
was run a second time, mostly on a processor, influence at T = 1 alone. For two of the 15 pairs of a task and a seed
k-means chose other demonstrations then, and margin for one; their rows replace the former ones, which are not kept.
All else gave the same answers to every row. At T > 1 the demonstrations of LENS for twelve pairs were not searched
again, but recognised by their digest among those that its search can reach. The accuracies of methods on this page
follow from these scores.

    python -m research.table1.runs --model MODEL --data-dir DIR -o research/tables/table1/NAME
    python -m research.table1.costs --model MODEL --data-dir DIR -o research/tables/table1/NAME/costs.jsonl
    python -m research.table1.rivals --model MODEL --data-dir DIR -o research/tables/table1/NAME/rivals.jsonl
    python -m research.evidence.runs --model MODEL --data-dir DIR -o research/tables/evidence --stages methods
    make table1

The first three continue from the model's results in `research/tables/table1/NAME.parquet` and extend them, the fourth,
which makes the 300 rows, from those in `research/tables/evidence/`; `python -m research.packing unpack
research/tables/table1/NAME` writes their folders, for `deepthink report research/tables/table1/NAME/*/`."""


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
    known = [name for name in CHOICES if name in model.complete]
    others = [name for name in known if name != BASELINE]
    gains = model.gains(others)
    most = max(gain.mean for gain in gains["plain"].values())
    best = [name for name in others if math.isclose(gains["plain"][name].mean, most)]
    named = " and ".join(f"{name} with {_points(gains['plain'][name])}" for name in best)
    return [
        f"At T = 1 with raw scores, the best of {len(others)} other choices against random demonstrations: {named}. "
        f"{_above(gains)}{_of_thinking(model, [name for name in known if name in model.scored])}"
    ]


def _of_thinking(model: Model, choices: Sequence[str]) -> str:
    """What thinking with T by dev rows, and calibration alone, change in the mean of these choices."""
    if BASELINE not in choices:
        return ""
    raw, corrected, correction = (
        _points(between(model.answers_of(choices, before), model.answers_of(choices, after)))
        for before, after in (("plain", "thinking"), ("plain batch", "thinking batch"), ("plain", "plain batch"))
    )
    return (
        f" In the mean of {len(choices)} choices, random among them, thinking with [T chosen on dev "
        f"rows](#with-t-by-dev-rows) changes accuracy by {raw} with raw scores and by {corrected} after batch "
        f"calibration. Calibration alone changes T = 1 by {correction}."
    )


def _above(gains: Mapping[str, Mapping[str, Difference]]) -> str:
    """How many methods are above random demonstrations, and of how many this is shown, by both kinds of scores."""
    sentences = []
    for kind, words in (("plain", "With raw scores"), ("plain batch", "After batch calibration")):
        of_kind = gains[kind]
        above = [name for name, gain in of_kind.items() if gain.mean > 0]
        p_values = holm([gain.p for gain in of_kind.values()])
        shown = [name for name, p in zip(of_kind, p_values, strict=True) if p < ALPHA and name in above]
        of_these = f"{len(shown)} it is shown ({', '.join(shown)})" if shown else "none is it shown"
        sentences.append(
            f"{words} the means of {len(above)} of {len(of_kind)} are above that of random; of {of_these}."
        )
    return " ".join(sentences)


def _points(value: Difference) -> str:
    """The mean in points, with its 95 % interval unless nothing varies."""
    low, high = value.interval
    return with_interval(value) if low < high < math.inf else f"{points(value.mean)} points"


def _beside_paper(model: Model) -> Iterator[str]:
    """What the paper's Table 1 says of thinking and of its best choice, and what is found here."""
    gains, ranked = model.more_gains.get("plain", {}), model.accuracies.groupby("method")["plain"].mean()
    choices = ranked[[name for name in CHOICES if name in model.complete]].sort_values(ascending=False)
    free = [name for name in gains if name in CHOICES and name not in LABELS]
    if not {THINKING, PAPER_BEST} <= set(gains) or PAPER_BEST not in choices or not free:
        return
    best = max(free, key=lambda name: gains[name].mean)
    yield (
        "In the paper's Table 1 Deep-Thinking without dev labels is above eleven choices of demonstrations, of which "
        f"GraphCut is the best. Here it changes the accuracy of random demonstrations by {_points(gains[THINKING])} "
        f"(T = 5), {PAPER_BEST} by {_points(gains[PAPER_BEST])}, and {best}, the best choice without further labels, "
        f"by {_points(gains[best])}. By the mean on {ROWS} rows {PAPER_BEST} is number "
        f"{list(choices.index).index(PAPER_BEST) + 1} of {len(choices)} choices."
    )


def _more(model: Model, figures: Path) -> Iterator[str]:
    """The methods on more rows, at T = 1, by raw scores and after batch calibration."""
    if model.more.empty:
        return
    closer = replace(model, accuracies=model.more)
    seeds, known = model.more["seed"].nunique(), [name for name in _ordered(closer) if name in closer.complete]
    yield f"### {len(known)} methods on {MORE_ROWS} rows, {counted(seeds, 'seed')}"
    others = [name for name in known if name != BASELINE]
    yield _above(model.more_gains)
    panels = {
        words: [
            dot(name, gain, _group(name)) for name, gain in ((name, model.more_gains[kind][name]) for name in others)
        ]
        for kind, words in SCORES.items()
    }
    name = f"{PurePath(model.name).name}-more.png"
    write(figures / name, dots_figure, panels, AXIS, LOOKS, COLUMN)
    yield f"![Accuracy of {len(others)} methods minus that of random demonstrations](table1/{name})"
    yield MORE
    yield from _first_readings(closer)


def dot(name: str, gain: Difference, group: str) -> Dot:
    """Without an interval that has no end, as that of one seed."""
    return Dot(name, gain.mean, gain.interval if np.isfinite(gain.interval).all() else None, group)


def _group(name: str) -> str:
    """The legend's line of a method on more rows."""
    if name == THINKING:
        return FIXED_T
    return POOLED if name in LABELS else UNLABELLED


MORE = """\
The scores of every one of these rows are kept (`random`, `techniques` and `choices` of `research/tables/evidence/`),
and [comparisons.csv](evidence/comparisons.csv) says of each method whether it tells labels apart better. LENS and
influence, which take most of an hour of a processor core for one task and seed, have three of the seeds there, and are
not in this table."""
ALL = f"### All choices, and three techniques, on {ROWS} rows, {counted(len(SEEDS), 'seed')}"


def _first_readings(model: Model) -> Iterator[str]:
    """Every method at T = 1 by raw scores, with what it costs, and after batch calibration."""
    costs = {cost["method"]: cost for cost in model.costs}
    cells = {method: _cost(method, costs) for method in _ordered(model)}
    yield _table(model, "plain", {"method": "---", "labels": "--:", "passes": "--:", "seconds": "--:"}, cells)
    yield "After batch calibration:"
    yield _table(model, "plain batch", {"method": "---"}, {method: [] for method in cells})


def _thinking(model: Model) -> Iterator[str]:
    """The methods whose scores are kept with T chosen on dev rows; not those that are read once."""
    shown = [name for name in _ordered(model) if name in model.scored and name != READ_ONCE]
    if not shown:
        return
    yield "#### With T by dev rows"
    yield (
        f"After thinking, with T chosen for each task and seed by the labels of {DEV_ROWS} dev rows, by raw scores. "
        f"Further cost: up to 8 readings, and the {DEV_ROWS} rows at each of four T. ct-kv, which has one "
        f"reading, and the results on {MORE_ROWS} rows, for which no T was chosen, are left out.{_left_out(model)}"
    )
    cells = {method: [_labels(method, int(DEV_ROWS))] for method in shown}
    yield _table(model, "thinking", {"method": "---", "labels": "--:"}, cells)
    yield "After batch calibration, by which T is chosen, too:"
    yield _table(model, "thinking batch", {"method": "---"}, {method: [] for method in cells})


def _left_out(model: Model) -> str:
    """Which methods have no figures with T by dev rows, and why."""
    names = [name for name in _ordered(model) if name in model.unscored]
    if not names:
        return ""
    return (
        f" Also left out: {' and '.join(names) if len(names) < 3 else ', '.join(names)}, of which the scores at T > 1 "
        "and of dev rows are not all kept."
    )


def _ordered(model: Model) -> list[str]:
    """The methods of a model: choices and techniques without labels of the pool, and then those that see some."""
    known = set(model.accuracies["method"])
    ordered = [*(name for name in METHODS if name in known), *sorted(known.difference(METHODS))]
    return sorted(ordered, key=lambda name: (LABELS.get(name, 0), name not in CHOICES))


def _cost(method: str, costs: dict[str, dict[str, Any]]) -> list[str]:
    cost, baseline = costs.get(method), costs.get(BASELINE if method in CHOICES else ONCE)
    if cost is None or baseline is None:
        return [_labels(method), "–", "–"]
    passes = f"{sum(cost[name] for name in PASSES):,}" if method in CHOICES else "–"
    seconds = cost["process_seconds"] - baseline["process_seconds"]
    return [_labels(method), passes, "0" if method == BASELINE else "< 1" if seconds < 1 else f"{seconds:,.0f}"]


def _labels(method: str, more: int = 0) -> str:
    """How many labels a method sees; those of the sets that random-valid draws may overlap."""
    return ("up to " if method == "random-valid" else "") + f"{LABELS.get(method, 0) + more:,}"


def _table(model: Model, kind: str, headings: dict[str, str], cells: dict[str, list[str]]) -> str:
    """A line for each method of `cells`: its cells, and its accuracies by task, means over seeds.

    A line without figures stands before the methods that see labels of the pool.
    """
    table = model.accuracies
    tasks = [task for task in TASKS if task in set(table["task"])]
    marks = [*headings.values(), *["--:"] * (len(tasks) + 1)]
    lines = [[*headings, *(TASK_NAMES[task] for task in tasks), "mean"], marks]
    means = table.groupby(["method", "task"])[kind].mean()
    pooled = next((method for method in cells if method in LABELS), None)
    for method, own in cells.items():
        if method == pooled:
            lines.append(["*labels of the pool:*", *[""] * (len(marks) - 1)])
        of_tasks = means[method].reindex(tasks)
        numbers = [*of_tasks, of_tasks.mean(skipna=False)]
        lines.append([method, *own, *("" if pd.isna(number) else f"{100 * number:.1f}" for number in numbers)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    header = " | ".join(TASK_NAMES[task] for task in tasks)
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
    "no model, and on the mean of the model's last hidden states over an input's tokens. They are trained on the "
    f"random demonstrations, or on these and the {DEV_ROWS} dev rows: the labels that T = 1 and a chosen T see."
)


def _against_rivals(model: Model, table: pd.DataFrame) -> Iterator[str]:
    """How far random demonstrations are above each classifier that sees the same labels."""
    seen = {"plain batch": "demonstrations", "thinking batch": "demonstrations and dev rows"}
    words = {"plain batch": "T = 1", "thinking batch": "T chosen on dev rows"}
    for kind, trained_on in seen.items():
        answers: dict[str, Answers] = {}
        for _, row in table[table["trained_on"] == trained_on].iterrows():
            right = np.array(from_bits(row["correct"], row["n"]), dtype=np.float64)
            answers.setdefault(row["classifier"], {})[row["task"], row["seed"]] = right
        random = model.answers_of([BASELINE], kind)
        differences = "; ".join(
            f"{_points(between(own, random))} against {name}" for name, own in answers.items() if own.keys() & random
        )
        if differences:
            yield f"Random demonstrations with {words[kind]}, after batch calibration: {differences}."


def _drawn(model: Model, figures: Path) -> Iterator[str]:
    """The methods at T = 1, and thinking after random demonstrations, against random demonstrations at T = 1."""
    known = [name for name in _ordered(model) if name in model.complete and name != BASELINE]
    if not known:
        return
    panels = {
        words: [
            dot(name, gain, group)
            for name, group, gain in (
                (name, group, model.change((BASELINE, kind), (method, kind.replace("plain", at))))
                for name, group, method, at in _lines_of(known)
            )
        ]
        for kind, words in SCORES.items()
    }
    name = f"{PurePath(model.name).name}.png"
    write(figures / name, dots_figure, panels, AXIS, LOOKS, COLUMN)
    yield f"![Accuracy of every method minus that of random demonstrations](table1/{name})"
    pairs = len(model.accuracies_of(BASELINE, "plain"))
    yield (
        f"Means over {pairs} task-seed pairs. *Thinking, T by dev* is after random demonstrations with eta 0.1, "
        f"restarted positions and T by the labels of {DEV_ROWS} dev rows; the picture above has the paper's setting."
    )


AXIS = "accuracy minus that of random at T = 1 (points)"


def _lines_of(known: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Name, group and method of every dot, and whether it is at T = 1 or at T by dev rows."""
    for name in known:
        yield name, _group(name), name, "plain"
    yield "thinking, T by dev", CHOSEN_T, BASELINE, "thinking"
