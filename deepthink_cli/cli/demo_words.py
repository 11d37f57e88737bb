"""The tables and sentences of `deepthink demo`, computed from its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deepthink_cli.cli.console import table

if TYPE_CHECKING:
    from rich.table import Table

    from deepthink_cli.evaluation import Evaluation
    from deepthink_cli.workflows.demo import ReadingCost


def curves(by_eta: Mapping[float, Evaluation]) -> Table:
    """Log-probability of the true label, accuracy and changed labels over T, side by side for every eta."""
    columns = [f"{name}{f', eta {eta:g}' if name == 'log p' else ''}" for eta in by_eta for name in _COLUMNS]
    rows = []
    for iteration in next(iter(by_eta.values())).results:
        cells = [str(iteration)]
        for evaluation in by_eta.values():
            changes = evaluation.changes.get(iteration)
            cells += [
                f"{evaluation.probabilities[iteration].log_probability:.3f}",
                f"{evaluation.results[iteration].accuracy:.1%}",
                str(changes.changed if changes else 0),
            ]
        rows.append(cells)
    return table("T", *columns, rows=rows)


_NOTABLE = 0.01  # nats; a smaller loss of log p is not called over-thinking
_COLUMNS = ("log p", "accuracy", "changed")


def story(eta: float, evaluation: Evaluation) -> str:
    """Where log p is highest, and what the last T changed, in words."""
    means = {iteration: each.log_probability for iteration, each in evaluation.probabilities.items()}
    last = max(means)
    best = max(means, key=means.__getitem__)
    if best == 1:
        trend = f"no T has a higher log p than T = 1 ({means[1]:.3f}; T = {last}: {means[last]:.3f})"
    elif best == last:
        trend = f"log p is highest at T = {last}, the last one: {means[1]:.3f} to {means[last]:.3f}"
    else:
        trend = (
            f"log p rises from {means[1]:.3f} to {means[best]:.3f} at T = {best}, and is {means[last]:.3f} "
            f"at T = {last}{': more readings over-think' if means[best] - means[last] > _NOTABLE else ''}"
        )
    return f"eta = {eta:g}: {trend}. {outcome(evaluation, last)}"


def outcome(evaluation: Evaluation, iteration: int) -> str:
    """What T = `iteration` changed in comparison with T = 1, with an exact paired test."""
    from deepthink_cli.report.significance import Discordant

    changes = evaluation.changes[iteration]
    points = 100 * (evaluation.results[iteration].accuracy - evaluation.results[1].accuracy)
    p = Discordant(changes.fixed, changes.broken).p
    verdict = "no more than chance can explain" if p >= 0.05 else "a gain" if points > 0 else "a loss"
    return (
        f"T = {iteration} changes {changes.changed} of {evaluation.n} labels: fixes {changes.fixed}, breaks "
        f"{changes.broken}, {points:+.1f} points; exact McNemar p = {p:.2g}: {verdict}."
    )


def choice(eta: float, iteration: int, evaluation: Evaluation, rows: str) -> str:
    """What the eta and T chosen on other rows give on the rows that are shown."""
    if iteration == 1:
        return f"Chosen on {rows} by log p: T = 1, plain in-context learning."
    return f"Chosen on {rows} by log p: eta = {eta:g}, T = {iteration}. Here {outcome(evaluation, iteration)}"


def bias(evaluation: Evaluation) -> str:
    """How often T = 1 and the last T give the most frequent answer of T = 1."""
    last = max(evaluation.results)
    plain, thought = (evaluation.results[iteration].predicted for iteration in (1, last))
    label = max(plain, key=plain.__getitem__)
    return (
        f"T = 1 answers '{label}' for {plain[label]} of {evaluation.n} rows, T = {last} for {thought.get(label, 0)}; "
        f"it is the true label of {evaluation.true_labels[label]}."
    )


def saved(cost: ReadingCost) -> list[str]:
    """What reading the demonstrations once saves, in seconds that were measured."""
    each, again = cost.scoring / cost.inputs, cost.rereading / cost.again
    return [
        f"One reading of {cost.tokens} tokens: {_seconds(cost.reading)}. After it, {cost.inputs} inputs: "
        f"{_seconds(cost.scoring)}, {_seconds(each)} each.",
        f"Reading them again before each input, {cost.again} inputs: {_seconds(cost.rereading)}, {_seconds(again)} "
        f"each: {cost.ratio:.1f} times as long, for the same scores (largest difference {cost.difference:.1g} nats).",
    ]


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"
