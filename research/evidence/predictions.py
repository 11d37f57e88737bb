"""The predictions of docs/preregistration.md beside what the runs of both models gave: hits, misses, and what is open.

    python -m research.evidence.predictions

Works on whatever is there: a prediction whose runs are missing is not decided.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from research.packing import TABLES, unpacked
from research.table1.runs import TASKS

from .arms import COMPOSED, CONTEXT_TUNING, beside_once
from .discrimination import (
    CONTINUED_TUNED,
    LARGE_STEP,
    MOMENTUM,
    PAPER_BY_DEV,
    RESTARTED_TUNED,
    Compared,
    Difference,
    compare,
    comparisons,
)
from .load import Evidence, read_evidence
from .methods import NEAREST_MEAN
from .page import lines
from .words import points, shown, table

CHOSEN = (PAPER_BY_DEV, CONTINUED_TUNED, RESTARTED_TUNED, MOMENTUM)
HIT, MISS, OPEN = "hit", "**miss**", "open"
WITHIN_WINDOWS = tuple(task for task in TASKS if task != "agnews")  # of the second model
RESTS_ON = (1, 2, 5, 7)
OF_A_GAIN = (2, 5, 7)  # they say where a gain comes from


@dataclass(frozen=True)
class Outcome:
    """What was found, in points, and what follows for the prediction."""

    found: str
    verdict: str


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of one model."""

    evidence: Evidence

    @cached_property
    def compared(self) -> dict[str, Compared]:
        """The comparisons with T = 1, by name."""
        return {each.name: each for each in (*comparisons(self.evidence), *beside_once(self.evidence))}

    def difference(self, name: str, measure: str, tasks: Collection[str] = TASKS) -> Difference:
        """The difference of a comparison on these tasks; raises KeyError if none of them has been run."""
        pairs = [pair for pair in self.compared[name].pairs if pair.task in tasks]
        if not pairs:
            raise KeyError(name)
        return compare(pairs, measure)


def verdict(hit: bool, miss: bool) -> str:
    """A hit if its condition holds, a miss if the condition that refutes it does, and open otherwise."""
    return HIT if hit else MISS if miss else OPEN


def said(name: str, change: Difference) -> str:
    """A difference and its interval, in points."""
    return f"{name} {shown(change)}"


def rises(change: Difference, by: float) -> bool:
    """Whether it is at least that large and its interval excludes 0."""
    return change.mean >= by and change.interval[0] > 0


def paper_discriminates_no_better(results: Results) -> Outcome:
    """Prediction 1."""
    change = results.difference(PAPER_BY_DEV, "AUC")
    return Outcome(said("AUC", change), verdict(abs(change.mean) < 0.01, rises(change, 0.01)))


def paper_moves_the_prior(results: Results) -> Outcome:
    """Prediction 2."""
    change = results.difference(PAPER_BY_DEV, "matched")
    return Outcome(said("matched", change), verdict(abs(change.mean) <= 0.01, rises(change, 0.01)))


def paper_gains_little(results: Results) -> Outcome:
    """Prediction 3."""
    change = results.difference(PAPER_BY_DEV, "accuracy")
    return Outcome(said("accuracy", change), verdict(-0.01 <= change.mean <= 0.03, change.mean >= 0.05))


def batch_gains_more(results: Results) -> Outcome:
    """Prediction 4."""
    gain = results.difference(PAPER_BY_DEV, "batch").before - results.difference(PAPER_BY_DEV, "accuracy").before
    changes = [results.difference(name, "accuracy").mean for name in CHOSEN]
    found = f"batch {points(gain)}; thinking {points(changes[0])}, in its best setting {points(max(changes))}"
    return Outcome(found, verdict(gain >= 0.05 and gain > max(changes), changes[0] > gain))


def fitted_leaves_nothing(results: Results) -> Outcome:
    """Prediction 5."""
    change, before = results.difference(PAPER_BY_DEV, "fitted"), results.difference(PAPER_BY_DEV, "accuracy").before
    found = f"{said('after the bias', change)}; the bias alone {points(change.before - before)}"
    return Outcome(found, verdict(abs(change.mean) < 0.015, rises(change, 0.015)))


def large_steps_lose(results: Results) -> Outcome:
    """Prediction 6."""
    change = results.difference(LARGE_STEP, "AUC")
    return Outcome(said("AUC", change), verdict(change.mean <= -0.05, change.mean >= 0))


def restarted_raises_accuracy_alone(results: Results) -> Outcome:
    """Prediction 7."""
    gain, change = results.difference(RESTARTED_TUNED, "accuracy"), results.difference(RESTARTED_TUNED, "AUC")
    hit = gain.mean > 0 and abs(change.mean) < 0.01
    return Outcome(f"{said('accuracy', gain)}; {said('AUC', change)}", verdict(hit, rises(change, 0.01)))


def composed_is_less_biased(results: Results) -> Outcome:
    """Prediction 8."""
    gain, area = (results.difference(COMPOSED, name, WITHIN_WINDOWS) for name in ("accuracy", "AUC"))
    hit = gain.mean >= 0.03 and abs(area.mean) < 0.02
    return Outcome(f"{said('accuracy', gain)}; {said('AUC', area)}", verdict(hit, gain.mean < 0))


def centroids_are_as_good(results: Results) -> Outcome:
    """Prediction 9."""
    change = results.difference(NEAREST_MEAN, "fitted")
    return Outcome(said("accuracy", change), verdict(change.mean >= -0.02, change.mean <= -0.05))


def context_tuning_learns(results: Results) -> Outcome:
    """Prediction 10."""
    change = results.difference(CONTEXT_TUNING, "batch", ("trec",))
    found = f"batch {100 * change.before:.1f} to {100 * change.after:.1f}"
    return Outcome(found, verdict(change.mean >= 0.1, change.mean < 0.03))


def windows_weaken(results: Results) -> Outcome:
    """Prediction 11, over the settings continued and restarted."""
    rows = results.evidence.grid
    rows = rows[(rows["eta"] == 0.1) & (rows["part"] == "test")]
    key = ["setting", "task", "seed"]
    first = rows[rows["t"] == 1].set_index(key)["accuracy"]
    later = rows[rows["t"] > 1].set_index(key)["accuracy"]
    change = (later - first.reindex(later.index)).groupby("task", observed=True).mean()
    news, reviews = float(change["agnews"]), float(change["sst2"])
    found = f"AG News {points(news)}, SST-2 {points(reviews)}"
    return Outcome(found, verdict(abs(news) < abs(reviews), abs(news) > abs(reviews)))


PREDICTIONS: tuple[tuple[str, Callable[[Results], Outcome]], ...] = (
    ("In the paper's setting thinking does not tell labels apart better", paper_discriminates_no_better),
    ("What it gains in accuracy is a move of the prior", paper_moves_the_prior),
    ("It gains little even so", paper_gains_little),
    ("Batch calibration of T = 1 gains more than thinking", batch_gains_more),
    ("A bias fitted on the same 150 labels leaves thinking nothing", fitted_leaves_nothing),
    ("Large steps lose discrimination", large_steps_lose),
    ("Restarted positions raise accuracy without discrimination", restarted_raises_accuracy_alone),
    ("Demonstrations read apart (`composed`) have less label bias, and discriminate as well", composed_is_less_biased),
    ("The nearest mean hidden state is as good as a fitted bias with the same labels", centroids_are_as_good),
    ("Context Tuning (`ct-kv`) on TREC learns", context_tuning_learns),
    ("Windows weaken thinking on long demonstrations", windows_weaken),
)
PAGE = """\
# A second model

In Deep-Thinking, here *thinking*, a language model reads its solved examples several times before it labels inputs. On
SmolLM2-135M-Instruct that changed how often labels are given, and was not shown to tell the inputs of different labels
apart better ([evidence](evidence.md)). This may hold on that model alone. So eleven [predictions](preregistration.md)
for another one were written down before it had labelled any row (commit e108292f, 2026-11-25), with the numbers that
would refute them. This page has what it gave: Gemma 3 270M, a base model with twice the parameters, its weights in 4 to
8 bits (Q4_K_M), computed in bfloat16, and in float32 in rows 8 to 10. Figures are of the [token ids of
parts](concepts.md#tokens) (`--tokens parts`), not of the whole prompt, which is the default now.

Accuracies and areas are in percent, differences in points. *Matched* compares both sides with every label given as
often, *batch* after batch calibration; *pairs* and *AUC* are areas under the ROC curve, between two labels and of one
label against the rest ([all measures](evidence.md)).

{predictions}

{decided} {rests} {gain}

Differences from T = 1 in points, means over tasks of means over seeds, with intervals as in [the page of
evidence](evidence.md). A prediction is a hit or a miss by the rule that was written down with it, and *open* between
the two. No verdict depends on an interval, so that it does not matter that the predictions meant those of resampled
seeds and rows. Rows 1 to 7 and 11 were also looked at before the fifth seed was run, with the same verdicts.

- Row 1 is judged by the AUC, as predicted; the table below has *pairs*, which no constants change.
- Row 2 is a weak test: of what a large step loses in *pairs*, *matched* shows a small part.
- Rows 8 to 10 have seeds 0 to 2 of both models. On SmolLM2 the predictions were made by one of these seeds (8 and 9)
  and by [Table 1](table1.md) (10, 43.6 to 69.8), whose 300 rows with ten seeds have since given less than half of that
  gain.
- Row 8 leaves out AG News, where the demonstrations are longer than the windows of Gemma and `composed` is refused.
- Row 9 is the nearest mean minus the bias fitted on the same labels.
- Row 10 is of one task and three seeds: its interval in the table below contains 0 and the 10 points of a hit.
- Row 11 is the mean change of accuracy over T > 1 at eta 0.1, with both kinds of positions.

What follows: Gemma differs from SmolLM2 in size, vocabulary, training, windows and the bits of its weights at once.
What both models show probably does not depend on one of these; what only one shows (rows 8 and 10) cannot be attributed
to any of them, and row 11 shows no effect of windows. Nothing is said of larger models.

## What thinking and techniques change

The table of [the page of evidence](evidence.md), where it is explained, for this model. The last three lines are
compared with T = 1 of seeds 0 to 2 in float32, and start from other accuracies.

{differences}

```console
$ python -m research.evidence.predictions
```

The commands of the runs are those of [the predictions](preregistration.md#the-model-and-the-runs).
"""


def outcomes(results: Results) -> Iterator[Outcome | None]:
    """What was found for each prediction; None where its runs are missing."""
    for _, found in PREDICTIONS:
        try:
            yield found(results)
        except KeyError:
            yield None


def page(first: Results, second: Results) -> str:
    """The page, with the figures of both models and the verdicts of the second one."""
    seconds = list(outcomes(second))
    rows = [
        [number, claim, "" if of_first is None else of_first.found, *_cells(of_second)]
        for number, ((claim, _), of_first, of_second) in enumerate(
            zip(PREDICTIONS, outcomes(first), seconds, strict=True), start=1
        )
    ]
    verdicts = [each if each is None else each.verdict for each in seconds]
    names = ["", "prediction", "SmolLM2", "Gemma 3 270M", "verdict"]
    return PAGE.format(
        decided=_decided(verdicts, _gains(second)),
        rests=_rests(verdicts),
        gain=_gain(second),
        predictions=table(names, rows, text=len(names)),
        differences=lines(list(second.compared.values())),
    )


def _cells(outcome: Outcome | None) -> tuple[str, str]:
    return ("", "not run") if outcome is None else (outcome.found, outcome.verdict)


def _decided(verdicts: list[str | None], gains: bool) -> str:
    counts = {"hits": verdicts.count(HIT), "misses": verdicts.count(MISS), "open": verdicts.count(OPEN)}
    counts["not run"] = verdicts.count(None)
    said = ", ".join(f"{name} {count}" for name, count in counts.items() if count or name != "not run")
    weak = sum(verdicts[number - 1] == HIT for number in OF_A_GAIN)
    without = "" if gains or not weak else f"; {weak} of the hits say little, since no gain of thinking is shown"
    return f"**Of {len(PREDICTIONS)} predictions: {said}{without}.**"


def _rests(verdicts: list[str | None]) -> str:
    came_out = all(verdicts[number - 1] == HIT for number in RESTS_ON)
    first = f"Predictions {', '.join(map(str, RESTS_ON))}, on which the page of evidence rests, "
    return first + (
        "are hits." if came_out else "are not all hits: that page is about SmolLM2, and not about thinking."
    )


def _gains(results: Results) -> bool:
    """Whether a gain of thinking is shown, or may be: its runs are missing."""
    names = (PAPER_BY_DEV, RESTARTED_TUNED)
    if not set(names) <= set(results.compared):
        return True
    return any(results.difference(name, "accuracy").interval[0] > 0 for name in names)


def _gain(results: Results) -> str:
    """What a hit means where there is no gain that could be a move of the prior."""
    if _gains(results):
        return "A hit says that its rule holds."
    chosen = results.compared[PAPER_BY_DEV]
    paper, restarted = (results.difference(name, "accuracy") for name in (PAPER_BY_DEV, RESTARTED_TUNED))
    gains = "; ".join([said("the paper's setting", paper), said("restarted", restarted)])
    return (
        f"Thinking changes accuracy by too little ({gains}) for predictions {', '.join(map(str, OF_A_GAIN))} to test "
        "where a gain comes from. Prediction 1 still tests whether labels are told apart better, and weakly: in "
        f"{chosen.unchanged} of {len(chosen.cells)} cases the dev rows chose T = 1, where nothing can change."
    )


def read(folder: Path) -> Results:
    """The results in a folder of packed tables."""
    with unpacked(folder) as evidence:
        return Results(read_evidence(evidence))


def main() -> None:
    """Parse the arguments and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=Path, default=TABLES / "evidence", help="tables of the first model")
    parser.add_argument("--second", type=Path, default=TABLES / "gemma", help="tables of the second model")
    parser.add_argument("--write", type=Path, default=Path("docs/second-model.md"), help="the page to write")
    args = parser.parse_args()
    args.write.write_text(page(read(args.first), read(args.second)), encoding="utf-8")
    print(args.write)


if __name__ == "__main__":
    main()
