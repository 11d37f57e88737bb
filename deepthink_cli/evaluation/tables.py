"""The metrics of an evaluation as tables of texts: by iteration, and the confusion of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepthink_cli.evaluation.metrics import Changes, Metrics, Probabilities

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # columns and rows


def table_by_iteration(
    results: Mapping[int, Metrics], probabilities: Mapping[int, Probabilities], changes: Mapping[int, Changes]
) -> Table:
    """A row for each T; counts of changed labels and the change of the log-probability are since T = 1."""
    columns = ["T", "accuracy", "95 % interval", "log-prob", "since T = 1", "changed", "fixed", "broken", "ECE"]
    rows = []
    for iteration, metrics in results.items():
        of_probabilities, change = probabilities.get(iteration), changes.get(iteration)
        rows.append(
            [
                str(iteration),
                f"{metrics.accuracy:.1%}",
                "{:.1%} to {:.1%}".format(*metrics.ci95),
                f"{of_probabilities.log_probability:.3f}" if of_probabilities else "",
                *(_since_first(change, of_probabilities is not None) if change else [""] * 4),
                f"{of_probabilities.ece:.3f}" if of_probabilities else "",
                f"{metrics.accuracy_mean_per_token:.1%}",
                "" if metrics.macro_f1 is None else f"{metrics.macro_f1:.3f}",
                str(metrics.ties),
            ]
        )
    return [*columns, "mean/token", "macro-F1", "ties"], rows


def _since_first(changes: Changes, scored: bool) -> list[str]:
    counts = (changes.changed, changes.fixed, changes.broken)
    return [f"{changes.log_probability:+.3f}" if scored else "", *map(str, counts)]


def confusion_table(confusion: Mapping[str, Mapping[str, int]], metrics: Metrics) -> Table:
    """A row for each true label: how often each label was predicted, then its precision, recall and F1."""
    rows = []
    for gold, counts in confusion.items():
        label = metrics.per_label.get(gold)
        scores = [""] * 3 if label is None else [f"{value:.3f}" for value in (label.precision, label.recall, label.f1)]
        rows.append([gold, *(str(counts[guess]) for guess in confusion), *scores])
    return ["true label", *confusion, "precision", "recall", "F1"], rows
