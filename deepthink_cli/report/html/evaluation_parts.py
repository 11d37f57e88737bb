"""The tables and charts of one evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepthink_cli.evaluation import Evaluation
from deepthink_cli.metrics.tables import confusion_table
from deepthink_cli.provenance import Technique
from deepthink_cli.report.html.page import Chart, ChartGroup, Point, Series, Table
from deepthink_cli.techniques.registry import first_reading

BANDS = "Bands are 95 % intervals: Wilson's of accuracies, Student's of means."
LEGEND = (
    "Log-prob: mean log of the true label's share among its candidates, in nats; the change, and the rows changed, "
    "fixed and broken, are since T = 1. ECE: expected calibration error. Mean/token: accuracy by mean log-probability "
    "per token. Ties: rows with several best candidates."
)


def tables_of(evaluation: Evaluation) -> list[Table]:
    """A table of iterations for each way of scoring, and the confusion of labels at the last iteration."""
    tables = []
    for by, each in _ways(evaluation).items():
        way = f" by {by}" if evaluation.calibrated else ""
        tables.append(Table(f"{each.n:,} rows{way}", *each.table()))
        if each.confusion:
            confused = confusion_table(each.confusion, each.last)
            tables.append(Table(f"Predicted labels at T = {max(each.results)}{way}", *confused, is_open=not way))
    return tables


def curves_of(evaluation: Evaluation, technique: Technique | None = None) -> list[ChartGroup]:
    """Charts of accuracy, log-probability of the true label, and the rows fixed and broken; none for a single T."""
    iterations = list(evaluation.results)
    if len(iterations) < 2:
        return []
    ways = _ways(evaluation)
    accuracy = {by: [_accuracy(each, t) for t in iterations] for by, each in ways.items()}
    log_probability = {by: [_log_probability(each, t) for t in iterations] for by, each in ways.items()}
    changes = {name: [_count(evaluation, name, t) for t in iterations] for name in ("fixed", "broken")}
    level = None if evaluation.majority is None else 100 * evaluation.majority[1]
    name = "" if level is None or evaluation.majority is None else f"always {evaluation.majority[0]!r}, {level:.1f}"
    charts = [
        Chart("Accuracy", "accuracy (%)", iterations, _lines(accuracy), level, name),
        Chart("Log-probability of the true label", "nats, mean", iterations, _lines(log_probability)),
    ]
    if evaluation.changes:
        charts.append(Chart("Rows that thinking changed since T = 1", "rows", iterations, _lines(changes)))
    about = f"T = 1 is {first_reading(technique)}. {BANDS}"
    return [ChartGroup("Over the iterations T", about, charts)]


def _ways(evaluation: Evaluation) -> dict[str, Evaluation]:
    return {"raw scores": evaluation} | {f"{name} calibration": each for name, each in evaluation.calibrated.items()}


def _accuracy(evaluation: Evaluation, iteration: int) -> Point:
    metrics = evaluation.results[iteration]
    low, high = metrics.ci95
    return Point(100 * metrics.accuracy, (100 * low, 100 * high), f"{metrics.accuracy:.1%} ({low:.1%} to {high:.1%})")


def _log_probability(evaluation: Evaluation, iteration: int) -> Point:
    known = evaluation.probabilities[iteration]
    interval = known.log_probability_ci95
    around = "" if interval is None else " ({:.3f} to {:.3f})".format(*interval)
    return Point(known.log_probability, interval, f"{known.log_probability:.3f}{around}")


def _count(evaluation: Evaluation, name: str, iteration: int) -> Point:
    changes = evaluation.changes.get(iteration)
    count: int = 0 if changes is None else getattr(changes, name)
    return Point(count, None, str(count))


def _lines(points: Mapping[str, Sequence[Point]]) -> list[Series]:
    return [Series.of(label, colour, values) for colour, (label, values) in enumerate(points.items())]
