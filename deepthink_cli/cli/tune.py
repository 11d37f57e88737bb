"""`deepthink tune`: choose T and the other settings with labelled rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.calibration.registry import NONE
from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, duration, note, report, table, write_json
from deepthink_cli.cli.data_options import LABELLED_ROWS, ChatArguments, PromptArguments, RowArguments
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments, Details, tell_of_toy
from deepthink_cli.cli.scoring_options import WITHOUT_PARTS, ScoringOptions
from deepthink_cli.cli.values import check_given, read_by
from deepthink_cli.errors import Problems
from deepthink_cli.io.text import named, size
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag, Joined, joined
from deepthink_cli.scoring.scoring import Scoring, as_options
from deepthink_cli.tuning.options import TuneOptions, best_of_trajectories
from deepthink_cli.tuning.rivals import RIVALS

if TYPE_CHECKING:
    from deepthink_cli.tuning.tune import TuneReport

    RivalOptions = Joined
else:
    RivalOptions = joined("RivalOptions", {name: each.options for name, each in RIVALS.items()})

MANY = 10_000  # rows whose time is told
MAX_ROWS = 30  # the most rows of the table
PLAIN = "plain in-context learning"

Rows = Annotated[str, typer.Argument(metavar="ROWS", help=f"Labelled rows: {LABELLED_ROWS}; - for stdin.")]
Output = Annotated[
    Path | None,
    Flag(OUTPUT, "Also write the memory of all rows, with the chosen settings.", "FILE", short="-o", variable=False),
]


@about(
    "tune rows.jsonl -m gpt2 -T 15 -o mem.safetensors",
    first="output details model iterations eta calibrate budget chat shots template label_field",
)
@grouped
def tune(
    context: typer.Context,
    rows: Rows,
    output: Output = None,
    details: Details = False,
    *,
    model: Annotated[Given[ModelOptions], NEW_MODEL],
    tuning: Given[TuneOptions],
    own: Given[RivalOptions],
    reading: RowArguments,
    prompt: PromptArguments,
    chat: ChatArguments,
    scoring: Annotated[Given[ScoringOptions], WITHOUT_PARTS],
    common: CommonArguments,
) -> None:
    """Choose a correction and a way of reading by labelled rows.

    It does so by nested cross-validation, without a dev set. Plain in-context learning is kept unless the choice is
    better than it beyond noise.
    """
    from deepthink_cli.cli.pools import pool_of_rows
    from deepthink_cli.io.cache import Store
    from deepthink_cli.outputs import check_memory_apart
    from deepthink_cli.tuning.plan import LabelledRows, plan_tuning
    from deepthink_cli.tuning.tune import tune as tuned

    problems, show = Problems(), Show(common, bar=not common.as_json)
    problems.tried(check_given, context, "tune")
    if output is not None:
        with problems.collected():
            paths: dict[str, Any] = {"template": prompt.template, "labels": prompt.labels}
            check_memory_apart(output, read_by(rows, model=model.model, config=common.config, **paths))
    model_options = problems.tried(model.checked)
    options = problems.tried(tuning.checked, own=own.changed)
    pool = problems.tried(lambda: pool_of_rows(reading.of(rows, prompt.labels, show), prompt, show))
    steps = problems.tried(Scoring.of, **scoring.changed)
    problems.raise_any()
    with show as tell:
        tell_of_toy(model, tell)
        plan = plan_tuning(LabelledRows(pool, chat.value, steps), model_options, options, tell)
        result = tuned(plan, output, store=Store(), tell=tell)
    print_report(result, common, details)


def print_report(result: TuneReport, common: CommonArguments, details: bool) -> None:
    """Print the result on stdout, as text or as one JSON object, and what to do next on stderr."""
    if common.as_json:
        write_json(result.as_json())
    else:
        if details:
            report(_described(result), "", _table(result), "", *_behind(result), "")
        report(*_summary(result, details))
    name = "mem.safetensors"
    if result.header is not None:
        name = result.header.path
        note(f"wrote {name} ({size(result.header.size)}, {result.setting})", common.quiet)
    calibration = result.setting.calibration
    corrected = "" if calibration == NONE or result.stored else f" --calibrate {calibration}"
    advice = "next" if result.header is not None else f"with -o {name}, next"
    scored = as_options(result.plan.rows.scoring.recorded)
    note(f"{advice}: deepthink predict {name} INPUTS{corrected}{scored}", common.quiet)


def _described(result: TuneReport) -> str:
    plan = result.plan
    labels = ", ".join(map(named, plan.rows.pool.labels)) or "with every row"
    return (
        f"{plan.rows.pool.name}: {len(plan.rows)} rows, labels {labels}; {plan.spec.id}; {len(plan.folds)} folds, "
        f"seed {plan.options.seed}; {len(result.settings)} settings in {result.seconds:.1f} s"
    )


def _table(result: TuneReport) -> Any:
    """The best setting of each technique and method, plain in-context learning first."""
    from deepthink_cli.evaluation.metrics import wilson

    rows, count = [], len(result.plan.rows)
    best = best_of_trajectories(result.settings, result.right)
    for number in best[:MAX_ROWS]:
        accuracy = result.right[number] / count
        setting = result.settings[number]
        cost = [setting.method.iterations, f"{result.seconds_of(setting):.1f}", result.labels_of(setting)]
        rows.append([str(setting), f"{accuracy:.1%}", _interval(wilson(accuracy, count)), *map(str, cost)])
    if len(best) > MAX_ROWS:
        rows.append([f"... and {len(best) - MAX_ROWS} more; --json has all", *[""] * 5])
    for rival in result.rivals:
        interval = _interval(wilson(rival.accuracy, count))
        rows.append([rival.name, f"{rival.accuracy:.1%}", interval, "", f"{rival.seconds:.1f}", str(count)])
    columns = "accuracy", "95 % interval", "readings", "seconds", "labelled rows"
    return table("best of each kind, by cross-validation", *columns, rows=rows)


def _of_plain(result: TuneReport) -> dict[str, float]:
    """The accuracy of plain in-context learning with each calibration that was tried."""
    settings, plain = zip(result.settings, result.right, strict=True), result.settings[0]
    return {each.calibration: right / len(result.plan.rows) for each, right in settings if each.place == plain.place}


def _summary(result: TuneReport, details: bool) -> list[str]:
    """The setting to use, what to expect of it, what labels more rows correctly, and what it took: a line each."""
    from deepthink_cli.evaluation.metrics import wilson

    found, share = result.comparison, result.tuned.accuracy
    chosen, plain = (f"{each:.1%} ({_interval(wilson(each, found.rows))})" for each in (share, found.baseline))
    expected = f"{chosen}; {PLAIN} {plain}" if result.kept else plain
    lines = [*_verdict(result), f"expect on rows like these: {expected}"]
    rival = max(result.rivals, key=lambda each: each.right, default=None)
    if rival is not None and rival.accuracy > share:
        instead = ": use that instead" if rival.asked else ""
        better = f"{rival.accuracy:.1%} against {share:.1%}{instead}"
        lines.append(f"{rival.name} labels more of the same rows correctly, {better}")
    if result.seconds_per_row is not None:
        lines.append(f"labelling {MANY:,} such rows takes about {duration(MANY * result.seconds_per_row)} here")
    if result.not_tried:
        lines.append(f"not tried, for lack of time: {'; '.join(result.not_tried)}")
    if not details:
        took = f"{len(result.settings)} settings in {result.seconds:.0f} s"
        lines.append(f"{took}; {flag('details')}: the best of each kind")
    return lines


def _verdict(result: TuneReport) -> list[str]:
    """The setting that the rows chose; or if they chose none, the label that is given too often, and rows to add."""
    from deepthink_cli.tuning.nested import FEWEST_ROWS, LEVEL, UNLABELLED

    setting, found, excess = result.setting, result.comparison, result.excess
    gain = 100 * found.difference
    if result.chosen_by_rows:
        low, high = found.interval
        by = f"by {gain:.1f} points ({100 * low:+.1f} to {100 * high:+.1f}), p < {LEVEL}"
        if setting.place == result.settings[0].place:
            return [f"verdict: {PLAIN} (T = 1) with calibration {setting.calibration} is better than without it {by}"]
        return [f"verdict: {setting} is better than {PLAIN} (T = 1) {by}"]
    lines = [f"verdict: {PLAIN} (T = 1) is kept: these {found.rows} rows show nothing better at p < {LEVEL}"]
    if excess is not None:
        said = f"without a correction, {excess.given} of them get the label {excess.label!r}, and {excess.true} have it"
        if setting.calibration != NONE:
            lines.append(f"{said}: {setting.calibration}, which needs no labels, corrects it")
        elif _of_plain(result).keys().isdisjoint(UNLABELLED):
            memory = "MEMORY" if result.header is None else result.header.path
            way = f"deepthink calibrate {memory} --calibrate {UNLABELLED[0]}"
            lines.append(f"{said}: {way} corrects it without labels")
    if (wrong := found.rows - found.plain) < FEWEST_ROWS:
        needed = f"to show a gain takes {FEWEST_ROWS} corrected rows: label more"
        lines.append(f"{wrong} of them are labelled wrongly; {needed}")
    elif found.rows_to_show is not None:
        more = f"about {found.rows_to_show} rows would show it"
        lines.append(f"the choice gains {gain:.1f} points on held-out rows: {more}")
    return lines


def _behind(result: TuneReport) -> list[str]:
    """What the verdict rests on: calibrations, the chosen setting, its nested comparison, and its correction alone."""
    found, setting = result.comparison, result.setting
    best, most = (f"{right / found.rows:.1%}" for right in (result.right[result.best], max(result.right)))
    shares, (low, high) = _of_plain(result), found.interval
    listed = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    p = "< 0.001" if found.p < 0.001 else f"= {found.p:.3f}"
    lines = [f"{PLAIN} by calibration: {listed}"] if len(shares) > 1 else []
    lines += [
        f"within one standard error of the best of {len(result.settings)} settings ({most}), the head or the simplest: "
        f"{result.settings[result.best]}, {best} of the rows that chose it",
        f"nested difference: {100 * found.difference:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}); "
        f"{found.gained} rows gained, {found.lost} lost, one-sided sign test p {p}",
    ]
    if setting.place != result.settings[0].place and setting.calibration != NONE and setting.calibration in shares:
        alone, whole = shares[setting.calibration], result.right[result.kept] / found.rows
        lines.append(f"{PLAIN} with calibration {setting.calibration}: {alone:.1%}, against {whole:.1%}")
    return lines


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1%} to {interval[1]:.1%}"
