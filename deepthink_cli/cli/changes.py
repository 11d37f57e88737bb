"""The part of `deepthink eval` beside the accuracy: probabilities, changed labels and the distribution of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepthink_cli.cli.console import table

if TYPE_CHECKING:
    from deepthink_cli.evaluation import Evaluation
    from deepthink_cli.metrics.changes import Changes

LABELS = 12  # rows of the table of labels


def probabilities(evaluation: Evaluation, by: str = "") -> list[Any]:
    """A title that ends with `by`, the probabilities and changes of every iteration, and a sentence about the last."""
    rows = []
    for iteration, each in evaluation.probabilities.items():
        changes = evaluation.changes.get(iteration)
        cells = _cells(changes) if evaluation.changes else []
        rows.append([str(iteration), f"{each.log_probability:.3f}", *cells, f"{each.ece:.3f}"])
    since = ["since T = 1", "95 % interval", "changed", "fixed", "broken"] if evaluation.changes else []
    title = ", and what changed since T = 1" if evaluation.changes else ""
    bins = next(iter(evaluation.probabilities.values())).ece_bins
    return [
        f"Mean log-probability of the true label in nats{title}{by}:",
        table("T", "log-prob", *since, "ECE", rows=rows),
        *_verdict(evaluation),
        *([] if by else [f"ECE is the expected calibration error, over {bins} bins of equal width"]),
    ]


def generated(evaluation: Evaluation) -> list[Any]:
    """What changed of generated answers since T = 1: how many rows have another answer, a right or a wrong one now."""
    rows = [
        [str(iteration), str(each.changed), str(each.fixed), str(each.broken)]
        for iteration, each in evaluation.changes.items()
    ]
    title = "Generated answers, right if they match the true answer"
    return [f"{title}; since T = 1:", table("T", "changed", "fixed", "broken", rows=rows)] if rows else [title]


def _cells(changes: Changes | None) -> list[str]:
    if changes is None:
        return [""] * 5
    interval = changes.log_probability_ci95
    between = "" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"
    counts = map(str, (changes.changed, changes.fixed, changes.broken))
    return [f"{changes.log_probability:+.3f}", between, *counts]


def _verdict(evaluation: Evaluation) -> list[str]:
    """Whether the last iteration finds the true labels more likely than T = 1 does."""
    last = max(evaluation.results)
    changes = evaluation.changes.get(last)
    if changes is None or changes.log_probability_ci95 is None:
        return []
    low, high = changes.log_probability_ci95
    verdict = "more likely than" if low > 0 else "less likely than" if high < 0 else "about as likely as"
    noise = "is within noise" if low <= 0 <= high else "exceeds noise"
    return [f"T = {last} finds the true labels {verdict} T = 1: the change {noise}"]


def distribution(evaluation: Evaluation, by: str = "") -> list[Any]:
    """A title that ends with `by`, and the share of each label in truth, at T = 1 and at the last T."""
    true, last = evaluation.true_labels, max(evaluation.results)
    if not true:
        return []
    shown = dict.fromkeys((1, last)) if 1 in evaluation.results else {last: None}
    answers = {t: evaluation.results[t].predicted for t in shown}
    labels = sorted(true, key=lambda label: -abs(answers[last].get(label, 0) - true[label]))[:LABELS]
    rows = [
        [
            label,
            *(
                f"{count / evaluation.n:.1%}"
                for count in (true[label], *(each.get(label, 0) for each in answers.values()))
            ),
        ]
        for label in true
        if label in labels
    ]
    most = f" (the {LABELS} of {len(true)} that differ most)" if len(labels) < len(true) else ""
    return [f"Share of each label{by}{most}:", table("", "true", *(f"T = {t}" for t in answers), rows=rows)]
