"""The page of an evaluation, which `deepthink eval --html` writes, and the observer that writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from deepthink_cli.artifact.metadata import method_text, origin_lines, prompt_lines, versions
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import Evaluation, confusion_table
from deepthink_cli.evaluation.report import EvaluationEnded, EvaluationReport, EvaluationStarted, RowPredicted
from deepthink_cli.events import Event, Note, Tell
from deepthink_cli.experiments.samples import as_lines
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.text import size
from deepthink_cli.outputs import check_apart
from deepthink_cli.plugins.pages.page import Chart, ChartGroup, Point, Series, Table, WebPage, render
from deepthink_cli.plugins.pages.registry import PageOptions
from deepthink_cli.plugins.pages.samples import Group, Samples
from deepthink_cli.provenance import RecordedTechnique
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.techniques.registry import first_reading

SUFFIXES = (".html", ".htm")


def check(options: PageOptions, read: Sequence[str | Path], runs: Collection[Path]) -> None:
    """Raise InputError unless the page can be written, to a name that ends in .html, and as `check_apart` does."""
    assert options.html is not None
    if options.html.suffix.lower() not in SUFFIXES:
        raise InputError.of("html", options.html, "a page is HTML; end the name in .html")
    check_apart(options.html, read, "html", runs=runs)


class PageWriter:
    """Collects the events of an evaluation, and writes its page at the end.

    Predictions are the samples of the page, with labels and scores by the first calibration, or raw.
    """

    def __init__(self, options: PageOptions, line: str, tell: Tell) -> None:
        assert options.html is not None
        self.path, self.line, self.tell = options.html, line, tell
        self.samples, self.iterations, self.calibration = Samples(), 0, ""
        self._waiting: list[Prediction] = []

    def __call__(self, event: Event) -> None:
        """Take what an event tells; a row is complete with its last prediction, one of each iteration."""
        match event:
            case EvaluationStarted(memory, calibrate):
                self.iterations, self.calibration = len({1, *memory.iterations}), "".join(calibrate[:1])
            case RowPredicted(prediction):
                self._waiting.append(prediction)
                if len(self._waiting) == self.iterations:
                    self._add_row(sorted(self._waiting, key=lambda each: each.iteration))
                    self._waiting.clear()
            case EvaluationEnded(report):
                text = render(page_of_evaluation(report, self.samples, self.calibration, self.line))
                with writing(self.path, "html") as file:
                    file.write(text)
                self.tell(Note(f"wrote {self.path} ({size(self.path.stat().st_size)})"))

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


def page_of_evaluation(report: EvaluationReport, samples: Samples, calibration: str = "", command: str = "") -> WebPage:
    """The page of an evaluation and of its samples, by a calibration; `command` is the line that writes it."""
    made, evaluation = report.memory.provenance, report.evaluation
    task = report.task or made.task
    rows = report.split if report.task is None else f"{report.task}, split {report.split} ({report.protocol} protocol)"
    tables, footnotes = tables_of(evaluation), [f"Skipped {n}: {reason}" for reason, n in report.skipped.items()]
    if (overlap := report.overlap) is not None:
        text = "of the rows are demonstrations of the memory, which the model has read with labels"
        footnotes = [f"{overlap.rows:,} {text}", *footnotes]
        if (rest := overlap.rest) is not None:
            tables.append(Table(f"{rest.n:,} rows that are not demonstrations", *rest.table()))
    about = f"Labels and scores are those of {calibration} calibration."
    return WebPage(
        title=f"{report.memory.name} on {rows}",
        summary=[
            f"{made.model.id}, {len(made.demonstrations.examples)} demonstrations" + (f" of {task}" if task else ""),
            f"{evaluation.n:,} rows at T = {', '.join(map(str, evaluation.results))}",
        ],
        tables=tables,
        legend=[LEGEND],
        footnotes=footnotes,
        curves=curves_of(evaluation, made.technique),
        settings=_settings(report),
        versions=versions(),
        command=command,
        samples=samples,
        about_samples=[] if calibration in ("", "none") else [about],
    )


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
    level, name = None, ""
    if evaluation.majority is not None:
        level = 100 * evaluation.majority[1]
        name = f"always {evaluation.majority[0]!r}, {level:.1f}"
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
