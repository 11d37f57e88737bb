"""The page of an evaluation, which `deepthink eval --html` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepthink_cli.artifact.metadata import method_text, origin_lines, prompt_lines, versions
from deepthink_cli.evaluation.metrics import Evaluation, confusion_table
from deepthink_cli.evaluation.report import EvaluationReport
from deepthink_cli.experiments.samples import as_lines
from deepthink_cli.plugins.pages.page import Chart, ChartGroup, Point, Series, Table, WebPage
from deepthink_cli.plugins.pages.samples import Group, Samples
from deepthink_cli.provenance import RecordedTechnique
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.techniques.registry import first_reading


class Observed:
    """Collects predictions as the samples of a page; pass `add` to `evaluate` as `observe`.

    Each row has `iterations` predictions, one after another. Labels and scores are by the first calibration, or raw.
    """

    def __init__(self, iterations: int, calibrate: Sequence[str] = ()) -> None:
        self.samples = Samples()
        self.iterations, self.calibration = iterations, "".join(calibrate[:1])
        self._waiting: list[Prediction] = []

    def add(self, prediction: Prediction) -> None:
        """Take one prediction; the row is complete with its last one."""
        self._waiting.append(prediction)
        if len(self._waiting) == self.iterations:
            self._add_row(sorted(self._waiting, key=lambda each: each.iteration))
            self._waiting.clear()

    def _add_row(self, predictions: Sequence[Prediction]) -> None:
        query = predictions[0].query
        if not self.samples.groups:
            self.samples.start(Group("", "", "", "test", tuple(each.iteration for each in predictions)))
        answers = [
            each.calibrated[self.calibration].prediction if self.calibration in each.calibrated else each
            for each in predictions
        ]
        self.samples.add(
            text=as_lines(query.text),
            where=query.where,
            gold=str(query.gold),
            candidates=list(answers[0].scores),
            labels=[answer.label for answer in answers],
            scores=[list(answer.scores.values()) for answer in answers],
        )


def page_of_evaluation(report: EvaluationReport, observed: Observed, command: str = "") -> WebPage:
    """The page of an evaluation and of the predictions that were observed; `command` is the line that writes it."""
    made, evaluation = report.memory.provenance, report.evaluation
    task = report.task or made.task
    rows = report.split if report.task is None else f"{report.task}, split {report.split} ({report.protocol} protocol)"
    return WebPage(
        title=f"{report.memory.name} on {rows}",
        summary=[
            f"{made.model.id}, {len(made.demonstrations.examples)} demonstrations" + (f" of {task}" if task else ""),
            f"{evaluation.n:,} rows at T = {', '.join(map(str, evaluation.results))}",
        ],
        tables=[*tables_of(evaluation), *_rest(report)],
        legend=[LEGEND],
        footnotes=[*_overlap(report), *(f"Skipped {count}: {reason}" for reason, count in report.skipped.items())],
        curves=curves_of(evaluation, made.technique),
        settings=_settings(report),
        versions=versions(),
        command=command,
        samples=observed.samples,
        about_samples=_about_samples(observed.calibration),
    )


def _overlap(report: EvaluationReport) -> list[str]:
    if report.overlap is None:
        return []
    return [
        f"{report.overlap.rows:,} of the rows are demonstrations of the memory, which the model has read with labels"
    ]


def _rest(report: EvaluationReport) -> list[Table]:
    rest = None if report.overlap is None else report.overlap.rest
    return [] if rest is None else [Table(f"{rest.n:,} rows that are not demonstrations", *rest.table())]


def _about_samples(calibration: str) -> list[str]:
    return [f"Labels and scores are those of {calibration} calibration."] if calibration not in ("", "none") else []


def _settings(report: EvaluationReport) -> dict[str, str]:
    made = report.memory.provenance
    method, read = made.method, made.demonstrations
    return {
        "memory": report.memory.name,
        "sha256": report.memory.sha256 or "",
        **origin_lines(made, method_text(method.iterations, str(method.update), method.positions)),
        **prompt_lines(read.labels, read.template, read.chat),
        "rows": report.split,
        "protocol": report.protocol or "none",
        "scoring": str(report.scorer.scoring),
        "calibration": ", ".join(report.calibrate) or "none",
        "ensemble": ", ".join(report.ensemble) or "none",
        "seconds": f"{report.seconds:.1f}",
    }


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


def curves_of(evaluation: Evaluation, technique: RecordedTechnique | None = None) -> list[ChartGroup]:
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
