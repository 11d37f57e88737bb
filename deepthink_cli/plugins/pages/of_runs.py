"""The page of a report: its tables, curves over T, settings, and samples of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from deepthink_cli.artifact.metadata import versions
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import Result
from deepthink_cli.experiments.samples import find_samples, read_samples, read_texts
from deepthink_cli.plugins.pages.page import Chart, ChartGroup, Point, Series, Table, WebPage, render
from deepthink_cli.plugins.pages.samples import Group, Samples
from deepthink_cli.report.arms import varying
from deepthink_cli.report.figures import Curve, Panel, panels, with_gains
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.page import Report
from deepthink_cli.report.significance import Paired, Spread

ACCURACY = (
    "Percent, the mean over seeds; bands are ± 1 sample standard deviation. T = 1 is plain in-context learning, but of "
    "techniques it is theirs. Dashed lines are dev rows, which only choose T and eta."
)
DIFFERENCE = (
    "Points, the mean over seeds, each against T = 1 with the same demonstrations, of plain in-context learning for "
    "techniques that are compared with it; bands are Student's 95 % intervals, each for one T alone: a band "
    "that leaves zero is a change beyond the noise between seeds."
)


def curves_of(panels: Sequence[Panel]) -> list[ChartGroup]:
    """Charts of accuracy, and of its difference from T = 1; an arm has the same colour in all of them."""
    arms = list(dict.fromkeys(curve.arm for panel in panels for curve in panel.curves))
    names = varying(arms) or ["model", "eta"]

    def series_of(panel: Panel, points_of: Callable[[Curve], dict[int, Point]]) -> list[Series]:
        series = []
        for curve in panel.curves:
            label, points, is_dev = curve.arm.label(names, short=True), points_of(curve), curve.part == "dev"
            values = [points.get(t) for t in _iterations(panel)]
            label += " on dev rows" if is_dev else ""
            series.append(Series.of(label, arms.index(curve.arm), values, is_dashed=is_dev))
        return series

    charts = []
    for panel in panels:
        level = None if panel.majority is None else 100 * panel.majority
        name = "" if level is None else f"always the most frequent label, {level:.1f}"
        series = series_of(panel, lambda curve: {t: _mean(spread) for t, spread in curve.points.items()})
        charts.append(Chart(_title(panel), "accuracy (%)", _iterations(panel), series, level, name))
    groups = [ChartGroup("Accuracy", ACCURACY, charts)]
    if gains := with_gains(panels):
        charts = []
        for panel in gains:
            series = series_of(panel, lambda curve: {t: _gain(t, paired) for t, paired in curve.gains.items()})
            charts.append(Chart(_title(panel), "accuracy less T = 1", _iterations(panel), series, 0.0, "no change"))
        groups.append(ChartGroup("Difference from T = 1", DIFFERENCE, charts))
    return groups


def _title(panel: Panel) -> str:
    return f"{panel.name} (mean of {max(curve.tasks for curve in panel.curves)})" if panel.is_mean else panel.name


def _iterations(panel: Panel) -> list[int]:
    return sorted({t for curve in panel.curves for t in curve.points})


def _mean(spread: Spread) -> Point:
    mean, sd = 100 * spread.mean, 100 * (spread.sd or 0)
    if spread.sd is None:
        return Point(mean, None, f"{mean:.1f}")
    return Point(mean, (mean - sd, mean + sd), f"{mean:.1f} ± {sd:.1f} ({spread.n} seeds)")


def _gain(iteration: int, paired: Paired) -> Point:
    mean, interval = 100 * paired.spread.mean, paired.ci95
    if iteration == 1 and mean == 0:
        return Point(0.0, (0.0, 0.0), "0.0")  # by definition, not measured
    if interval is None:
        return Point(mean, None, f"{mean:+.1f}")
    low, high = (100 * bound for bound in interval)
    return Point(mean, (low, high), f"{mean:+.1f} ({low:+.1f} to {high:+.1f})")


def write_report(report: Report, file: TextIO) -> None:
    """Write the page of a report."""
    file.write(render(page_of_runs(report)))


MAX_VALUES = 12  # values of a setting that are listed


def page_of_runs(report: Report) -> WebPage:
    """The page of a report; raises InputError for samples that cannot be read."""
    samples, missing = samples_of(report.jobs)
    page, about = report.page, []
    if not len(samples):
        about.append("These runs have no samples; deepthink run --samples keeps every input's scores.")
    elif missing:
        about.append(f"{missing:,} results have no samples, and their inputs are not listed.")
    if len(samples) and not any(samples.texts):
        about.append("These runs kept no texts of their inputs, which are named by their file and line.")
    return WebPage(
        title="Deep-Thinking against plain in-context learning",
        summary=[page.source, page.title],
        tables=[Table(heading or page.title, page.columns, rows) for heading, rows in page.sections],
        legend=page.legend,
        footnotes=page.footnotes,
        curves=curves_of(panels(report.jobs, report.all_tasks)),
        settings=_settings(report.jobs),
        versions=versions(),
        command=report.line,
        samples=samples if len(samples) else None,
        about_samples=about,
    )


def _settings(jobs: Sequence[JobResults]) -> dict[str, str]:
    """Every field of the settings with its values, in the order of the rows, without fields that are never set."""
    values: dict[str, dict[str, None]] = {}
    for job in jobs:
        for result in (*job.test.values(), *job.dev.values()):
            for name, value in asdict(result.setting).items():
                values.setdefault(name, {})[_text(value)] = None
    return {name: _listed(name, list(texts)) for name, texts in values.items() if list(texts) != [""]}


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:g}"
        case dict():
            return ", ".join(f"{name}: {part}" for name, part in value.items())
    return str(value)


def _listed(name: str, texts: Sequence[str]) -> str:
    if name.endswith("_sha256") and len(texts) > 1:
        return f"{len(texts)} different"
    shown = [text or "none" for text in texts[:MAX_VALUES]]
    rest = len(texts) - len(shown)
    return ", ".join([*shown, *([f"and {rest} more"] if rest else [])])


INPUT = ("where", "gold", "candidates")  # of samples, the same at every iteration


def samples_of(jobs: Sequence[JobResults]) -> tuple[Samples, int]:
    """The samples of all jobs, and how many of their results have none.

    Raises InputError for a file of samples that is damaged or does not belong to its result.
    """
    samples, missing = Samples(), 0
    texts, names = cache(read_texts), varying(list(dict.fromkeys(job.arm for job in jobs)))
    for job in jobs:
        for part, by_iteration in (("test", job.test), ("dev", job.dev)):
            located = [(result, find_samples(folder_of(result), result)) for _, result in sorted(by_iteration.items())]
            files = [(path, result) for result, path in located if path is not None]
            missing += len(located) - len(files)
            if not files:
                continue
            seed, method = str(job.seed).removeprefix("seed "), job.arm.label(names, short=True)
            samples.start(Group(job.task, seed, method, part, tuple(result.setting.iteration for _, result in files)))
            columns = [read_samples(*each) for each in files]
            inputs = [columns[0][name] for name in INPUT]
            for each, (path, _) in zip(columns, files, strict=True):
                if [each[name] for name in INPUT] != inputs:
                    raise InputError(f"{path}: its inputs are not those of {files[0][0].name}; run into a new folder")
            known = texts(folder_of(files[0][1]), files[0][1].setting.rows_sha256)
            labels = zip(*(each["label"] for each in columns), strict=True)
            scores = zip(*(each["scores"] for each in columns), strict=True)
            for where, gold, candidates, of_labels, of_scores in zip(*inputs, labels, scores, strict=True):
                samples.add(known.get(where, ""), where, gold, candidates, of_labels, of_scores)
    return samples, missing


def folder_of(result: Result) -> Path:
    """The folder of the run that a result was read from."""
    return Path(result.where.rpartition(":")[0]).parent
