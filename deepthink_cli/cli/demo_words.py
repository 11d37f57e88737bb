"""The tables and sentences of `deepthink demo`, computed from its measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.cli.console import table

if TYPE_CHECKING:
    from rich.table import Table

    from deepthink_cli.workflows.demo import Answer, Answers, ReadingCost


def curves(answers: Mapping[float, Answers]) -> Table:
    """Log-probability of the true label, accuracy and changed labels over T, side by side for every eta."""
    from deepthink_cli.workflows.demo import mean

    columns = [f"{name}{f', eta {eta:g}' if name == 'log p' else ''}" for eta in answers for name in _COLUMNS]
    rows = []
    for iteration in next(iter(answers.values())):
        cells = [str(iteration)]
        for of_eta in answers.values():
            now, first = of_eta[iteration], of_eta[1]
            cells += [f"{mean(now):.3f}", f"{_accuracy(now):.1%}", str(_changed(first, now))]
        rows.append(cells)
    return table("T", *columns, rows=rows)


_NOTABLE = 0.01  # nats; a smaller loss of log p is not called over-thinking
_COLUMNS = ("log p", "accuracy", "changed")


def story(eta: float, answers: Answers) -> str:
    """Where log p is highest, and what the last T changed, in words."""
    from deepthink_cli.workflows.demo import mean

    means = {iteration: mean(of_t) for iteration, of_t in answers.items()}
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
    return f"eta = {eta:g}: {trend}. {outcome(answers, last)}"


def outcome(answers: Answers, iteration: int) -> str:
    """What T = `iteration` changed in comparison with T = 1, with an exact paired test."""
    from deepthink_cli.report.significance import discordant

    first, now = answers[1], answers[iteration]
    pairs = discordant([each.right for each in first], [each.right for each in now])
    points = 100 * (_accuracy(now) - _accuracy(first))
    verdict = "no more than chance can explain" if pairs.p >= 0.05 else "a gain" if points > 0 else "a loss"
    return (
        f"T = {iteration} changes {_changed(first, now)} of {len(now)} labels: fixes {pairs.gained}, breaks "
        f"{pairs.lost}, {points:+.1f} points; exact McNemar p = {pairs.p:.2g}: {verdict}."
    )


def choice(eta: float, iteration: int, answers: Answers, rows: str) -> str:
    """What the eta and T chosen on other rows give on the rows that are shown."""
    if iteration == 1:
        return f"Chosen on {rows} by log p: T = 1, plain in-context learning."
    return f"Chosen on {rows} by log p: eta = {eta:g}, T = {iteration}. Here {outcome(answers, iteration)}"


def bias(answers: Answers) -> str:
    """How often T = 1 and the last T give the most frequent answer of T = 1."""
    last = max(answers)
    plain, thought = ([each.label for each in answers[iteration]] for iteration in (1, last))
    label = max(sorted(set(plain)), key=plain.count)
    true = sum(each.gold == label for each in answers[1])
    return (
        f"T = 1 answers '{label}' for {plain.count(label)} of {len(plain)} rows, T = {last} for "
        f"{thought.count(label)}; it is the true label of {true}."
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


def _accuracy(answers: Sequence[Answer]) -> float:
    return sum(each.right for each in answers) / len(answers)


def _changed(first: Sequence[Answer], now: Sequence[Answer]) -> int:
    return sum(before.label != after.label for before, after in zip(first, now, strict=True))


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"
