"""The page of a report: its tables, curves over T, settings, the commands that repeat it, and samples of its runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.results import Result, Setting
from deepthink_cli.plugins.pages.page import Chart, ChartGroup, Point, Series, Table, WebPage, versions
from deepthink_cli.plugins.pages.run_samples import folder_of, samples_of
from deepthink_cli.report.arms import Arm, varying
from deepthink_cli.report.curves import Curve, Panel, panels, with_gains
from deepthink_cli.report.formats import Page
from deepthink_cli.report.job_results import JobResults
from deepthink_cli.report.page import Report
from deepthink_cli.report.significance import Paired, Spread
from deepthink_cli.scoring.scoring import options_of
from deepthink_cli.techniques.registry import DEEP_THINKING
from deepthink_cli.updates.registry import GATE
from deepthink_cli.updates.rules import gate_values

ACCURACY = (
    "Percent, the mean over seeds; bands are ± 1 sample standard deviation. T = 1 is plain in-context learning, but of "
    "techniques it is theirs. Dashed lines are dev rows, which only choose T and eta."
)
DIFFERENCE = (
    "Points, the mean over seeds, each against T = 1 with the same demonstrations, of plain in-context learning for "
    "techniques that are compared with it; bands are Student's 95 % intervals, each for one T alone: a band "
    "that leaves zero is a change beyond the noise between seeds."
)
PointsOf = Callable[[Curve], dict[int, Point]]


def curves_of(panels: Sequence[Panel]) -> list[ChartGroup]:
    """Charts of accuracy, and of its difference from T = 1; an arm has the same colour in all of them."""
    arms = list(dict.fromkeys(curve.arm for panel in panels for curve in panel.curves))
    colours = {arm: number for number, arm in enumerate(arms)}
    names = varying(arms) or ["model", "eta"]
    labels = {arm: arm.label(names, short=True) for arm in arms}
    groups = [ChartGroup("Accuracy", ACCURACY, [_accuracy(panel, labels, colours) for panel in panels])]
    if gains := with_gains(panels):
        charts = [_difference(panel, labels, colours) for panel in gains]
        groups.append(ChartGroup("Difference from T = 1", DIFFERENCE, charts))
    return groups


def _accuracy(panel: Panel, labels: Mapping[Arm, str], colours: Mapping[Arm, int]) -> Chart:
    majority = None if panel.majority is None else 100 * panel.majority
    name = "" if majority is None else f"always the most frequent label, {majority:.1f}"
    series = _series(panel, labels, colours, lambda curve: {t: _mean(spread) for t, spread in curve.points.items()})
    return Chart(_title(panel), "accuracy (%)", _iterations(panel), series, majority, name)


def _difference(panel: Panel, labels: Mapping[Arm, str], colours: Mapping[Arm, int]) -> Chart:
    series = _series(panel, labels, colours, lambda curve: {t: _gain(t, paired) for t, paired in curve.gains.items()})
    return Chart(_title(panel), "accuracy less T = 1", _iterations(panel), series, 0.0, "no change")


def _title(panel: Panel) -> str:
    return f"{panel.name} (mean of {max(curve.tasks for curve in panel.curves)})" if panel.is_mean else panel.name


def _iterations(panel: Panel) -> list[int]:
    return sorted({t for curve in panel.curves for t in curve.points})


def _series(panel: Panel, labels: Mapping[Arm, str], colours: Mapping[Arm, int], points_of: PointsOf) -> list[Series]:
    series = []
    for curve in panel.curves:
        points, is_dev = points_of(curve), curve.part == "dev"
        series.append(
            Series.of(
                labels[curve.arm] + (" on dev rows" if is_dev else ""),
                colours[curve.arm],
                [points.get(t) for t in _iterations(panel)],
                is_dashed=is_dev,
            )
        )
    return series


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


MAX_VALUES = 12  # values of a setting that are listed


def page_of_runs(report: Report, jobs: Sequence[JobResults], command: str = "", tasks: bool = False) -> WebPage:
    """The page of a report of these jobs; `command` is the line that writes it, `tasks` as in `report_of`.

    Raises InputError for samples that cannot be read.
    """
    samples, missing = samples_of(jobs)
    shown = panels(jobs, tasks)
    commands = [("This page", command)] if command else []
    commands += [("The results, with all combinations of the values", line) for line in run_commands(jobs)]
    return WebPage(
        title="Deep-Thinking against plain in-context learning",
        summary=[report.source, report.title],
        tables=list(_tables(report)),
        legend=[*report.legend, *(report.appendix.legend if report.appendix else [])],
        footnotes=report.footnotes,
        curves=curves_of(shown),
        settings=_settings(jobs),
        versions=versions(),
        commands=commands,
        samples=samples if len(samples) else None,
        about_samples=_about_samples(len(samples), missing, any(samples.texts)),
    )


def _tables(page: Page) -> Iterable[Table]:
    for heading, rows in page.sections:
        yield Table(heading or page.title, page.columns, rows)
    if page.appendix is not None:
        yield from _tables(page.appendix)


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


def _about_samples(rows: int, missing: int, has_texts: bool) -> list[str]:
    if not rows:
        return ["These runs have no samples; deepthink run --samples keeps every input's scores."]
    notes = []
    if missing:
        notes.append(f"{missing:,} results have no samples, and their inputs are not listed.")
    if not has_texts:
        notes.append("These runs kept no texts of their inputs, which are named by their file and line.")
    return notes


GIVEN = "given"  # the sampling of `run --demos`
STUDY = "study "  # before a field that only a study has


def run_commands(jobs: Sequence[JobResults]) -> list[str]:
    """A `deepthink run` line for each folder and for each set of tasks that share the options of one run.

    Files of demonstrations are not recorded in results; they are written as `--demos FILE`. What only a study says
    follows as a comment.
    """
    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for job in jobs:
        tested = next(iter(job.test.values()), None)
        for result in (*job.test.values(), *job.dev.values()):
            groups.setdefault(_shared(result, tested or result), []).append(result.setting)
    return [_command(folder, options, settings) for (folder, *options), settings in groups.items()]


def _shared(result: Result, tested: Result) -> tuple[Any, ...]:
    """The folder, and the options that have one value in a run; `tested` is a test result of the same job."""
    setting, limit = result.setting, tested.setting.limit
    drawn = setting.sampling != GIVEN and setting.balanced is None
    options: list[tuple[str, object]] = [
        ("--model", setting.model),
        ("--dtype", setting.dtype),
        ("--quantize", setting.quantize),
        ("--limit", limit if tested.setting.part == "test" else None),
        ("--shots", setting.shots if setting.sampling != GIVEN else None),
        ("--positions", setting.positions),
        *((f"--{name}", value) for name, value in options_of(setting.scoring).items()),
        ("--demos", "FILE" if setting.sampling == GIVEN else None),
        *((f"{STUDY}{name}", value) for name, value in _of_a_study(setting, drawn)),
    ]
    pairs = [(name, str(value)) for name, value in options if value is not None]
    return folder_of(result), *pairs, *([("--chat", "")] if setting.chat else [])


def _of_a_study(setting: Setting, drawn: bool) -> Iterator[tuple[str, object]]:
    """The fields of a study that are no options of a run, unless every run has their values."""
    if setting.protocol != "official":
        yield "protocols", setting.protocol
    if drawn and setting.sampling != "random":
        yield "sampling", setting.sampling
    if drawn:
        yield "orders", setting.order_seed
    if setting.pool_size != Experiment.model_fields["pool_size"].default:
        yield "pool_size", setting.pool_size
    yield "tokens", setting.tokens
    yield "balance", "true" if setting.balanced else None
    yield "system", setting.chat.system if setting.chat else None


def _command(folder: Path, options: Sequence[tuple[str, str]], settings: Sequence[Setting]) -> str:
    words = ["deepthink", "run"]
    for task in dict.fromkeys(setting.task for setting in settings):
        words += ["--task", task]
    words += [word for option in options if not option[0].startswith(STUDY) for word in option if word]
    seeds = sorted({setting.seed for setting in settings})
    words += ["--seeds", ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")]
    gated = [setting for setting in settings if not setting.is_trained]
    for name in gate_values(settings[0].gate):
        words += _option(name, (f"{gate_values(setting.gate)[name]:g}" for setting in gated))
    words += _option("update", (setting.update or GATE for setting in gated), GATE)
    words += _option(
        "technique", ((setting.technique or DEEP_THINKING).split()[0] for setting in settings), DEEP_THINKING
    )
    words += _option("demos-by", (setting.sampling for setting in settings if setting.balanced is not None))
    words += _option("calibrate", (setting.calibration or NONE for setting in settings), NONE)
    iterations = sorted({setting.iteration for setting in settings})
    words += ["--iterations", str(iterations[-1])]
    if iterations != list(range(1, iterations[-1] + 1)):
        words += ["--at", ",".join(map(str, iterations))]
    if dev := [setting for setting in settings if setting.part == "dev"]:
        words += ["--choose-on", f"dev:{dev[0].limit}"]
    of_a_study = [f"{name.removeprefix(STUDY)}: {value}" for name, value in options if name.startswith(STUDY)]
    comment = f"  # in a study, with {', '.join(of_a_study)}" if of_a_study else ""
    return shlex.join([*words, "-o", str(folder)]) + comment


def _option(name: str, values: Iterable[str], default: str | None = None) -> list[str]:
    """An option with its different values; nothing if they are none or the default alone."""
    unique = list(dict.fromkeys(values))
    return [] if unique in ([], [default]) else [f"--{name}", ",".join(unique)]
