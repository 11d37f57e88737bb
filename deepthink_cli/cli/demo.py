"""`deepthink demo`: both stages and what they give, on the built-in model or on another one."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, report, table
from deepthink_cli.cli.data_options import DataDir
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.errors import DeepThinkError, ExitCode, InputError
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.model.options import POCKET, SCORING, ModelOptions

if TYPE_CHECKING:
    from rich.table import Table

    from deepthink_cli.demo import Exhibit, ReadingCost
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.evaluation.evaluation import Evaluation
    from deepthink_cli.model.options import ModelOptions


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


_NOTABLE = 0.01  # nats; a smaller loss of log p is not called harm
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
            f"at T = {last}{': more readings do harm' if means[best] - means[last] > _NOTABLE else ''}"
        )
    return f"eta = {eta:g}: {trend}. {outcome(evaluation, last)}"


def outcome(evaluation: Evaluation, iteration: int) -> str:
    """What T = `iteration` changed in comparison with T = 1, with an exact paired test."""
    from deepthink_cli.evaluation.metrics import ALPHA

    changes = evaluation.changes[iteration]
    points = 100 * (evaluation.results[iteration].accuracy - evaluation.results[1].accuracy)
    verdict = "no more than chance can explain" if changes.p >= ALPHA else "a gain" if points > 0 else "a loss"
    return (
        f"T = {iteration} changes {changes.changed} of {evaluation.n} labels: fixes {changes.fixed}, breaks "
        f"{changes.broken}, {points:+.1f} points; exact McNemar p = {changes.p:.2g}: {verdict}."
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


INPUTS = 4  # labelled by the predict step
ROWS, DEV_ROWS = 200, 64  # of each task, with --data-dir
ETAS, AT = (0.01, 0.1), (1, 2, 4, 8, 12)
TASKS = {"sst2": "sst2", "agnews": "ag_news"}  # and their folders
_LEGEND = (
    "log p: mean log-probability of the true label, in nats, higher is better; changed: labels that differ from those "
    "of T = 1, plain in-context learning; eta = 0.01 is the paper's."
)
_CAUTION = (
    "That is one choice of demonstrations: with others thinking may gain, change nothing, or lose; "
    "deepthink run --seeds 5 compares several."
)


@about("demo", group="The two stages", first="model device offline data_dir quiet")
@grouped
def demo(
    *,
    model: Annotated[Given[ModelOptions], Without(*SCORING)],
    data_dir: DataDir = None,
    common: Annotated[CommonArguments, Without("json", "verbose", "config")],
) -> None:
    """Show the two stages, what thinking changes, and what a memory saves; by default offline, in seconds.

    The default is the built-in model on example files. With --data-dir the rows are those of SST-2 and AG News in
    that directory.
    """
    model = model.but(model=model.model or POCKET)
    options = model.checked()
    data, words, quiet = _examples(), _words(model), ["-q"] if common.quiet else []
    tasks = [] if data_dir is None else _tasks(data_dir)
    source = ["--task", tasks[0], "--data-dir", str(data_dir)] if tasks else []
    with temporary_folder() as folder:
        memory, few = folder / "reviews.safetensors", folder / "few.jsonl"
        _write_few(data / "reviews" / "labelled.jsonl", few, _field(tasks))
        read = source or [str(data / "reviews" / "demos.jsonl")]
        _step(
            "Think: read the demonstrations 5 times, and store the memory of the last reading in a file.",
            ["think", *read, *words, "-T", "5", "-o", str(memory), *quiet],
        )
        _step("Inspect: show what the memory contains.", ["inspect", str(memory)])
        _step("Predict: label new inputs with it.", ["predict", str(memory), str(few), *quiet])
    with Show(common) as tell:
        _measure(options, data, tasks, data_dir, tell)
    report("", _CAUTION)
    for line in ("", *_NEXT):
        note(line)


_NEXT = (
    "One of these curves, with eval after it: deepthink think --eta 0.1 -T 12 --keep 1,2,4,8,12.",
    'Now with your own data, ten lines of {"text": "...", "label": "..."}, and any causal language model:',
    "  deepthink think demos.jsonl -m gpt2 -T 5 -o mem.safetensors",
    "  deepthink predict mem.safetensors inputs.jsonl -o labels.jsonl",
    "  deepthink eval mem.safetensors labelled.jsonl",
)


def _measure(options: ModelOptions, data: Path, tasks: list[str], data_dir: Path | None, tell: Show) -> None:
    """Load the model, and print what thinking changes on each exhibit, and what reading once saves."""
    from deepthink_cli.demo import exhibit_of_files, exhibit_of_task, reading_cost
    from deepthink_cli.engine.opening import find_model, load
    from deepthink_cli.events import silent
    from deepthink_cli.tasks.sources import source_of

    if tasks:
        source = source_of(data_dir, options.offline)
        exhibits = [exhibit_of_task(task, source, ROWS, DEV_ROWS, tell) for task in tasks]
    else:
        reviews = exhibit_of_files("Film reviews", data / "reviews", "sentences.jsonl", "labelled.jsonl")
        exhibits = [reviews, exhibit_of_files("News articles", data / "news", "articles.jsonl")]
    engine = load(find_model(options, silent), silent)
    report("", f"What thinking changes, with {engine.identity.id}. {_LEGEND}")
    for exhibit in exhibits:
        _show(engine, exhibit, tell)
    cost = reading_cost(engine, exhibits[0].demonstrations, exhibits[0].rows)
    report("", "What a memory saves: the demonstrations are read once.", *saved(cost))


def _show(engine: Engine, exhibit: Exhibit, tell: Show) -> None:
    """Print what both etas change on the rows of an exhibit, and what a choice on its dev rows gives there."""
    from deepthink_cli.demo import best_settings, measure

    demonstrations = exhibit.demonstrations
    by_eta = {eta: measure(engine, demonstrations, exhibit.rows, eta, AT, tell) for eta in ETAS}
    title = f"{exhibit.name}: {len(demonstrations.examples)} demonstrations, {len(exhibit.rows)} rows of"
    report("", f"{title} {exhibit.rows_name}.", "", curves(by_eta), "")
    report(*(story(eta, evaluation) for eta, evaluation in by_eta.items()), bias(by_eta[ETAS[-1]]))
    if exhibit.dev:
        dev = {eta: measure(engine, demonstrations, exhibit.dev, eta, AT, tell) for eta in ETAS}
        eta, iteration = best_settings(dev)
        report(choice(eta, iteration, by_eta[eta], f"{len(exhibit.dev)} other rows ({exhibit.dev_name})"))


def _tasks(data_dir: Path) -> list[str]:
    """The tasks whose rows the directory has."""
    tasks = [task for task, folder in TASKS.items() if (data_dir / folder).is_dir()]
    if not tasks:
        raise InputError.of("data_dir", data_dir, f"has none of the folders {', '.join(TASKS.values())}")
    return tasks


def _field(tasks: list[str]) -> str:
    """The field of the template that holds a text: in a task's prompts it is `text`."""
    return "text" if tasks else "review"


def _write_few(labelled: Path, few: Path, field: str) -> None:
    rows = [json.loads(line) for line in labelled.read_text(encoding="utf-8").splitlines()]
    unlabelled = [{field: row["review"]} for row in rows[:: len(rows) // INPUTS][:INPUTS]]
    few.write_text("".join(json.dumps(row) + "\n" for row in unlabelled), encoding="utf-8")


def _words(model: Given[ModelOptions]) -> list[str]:
    """The options that differ from their defaults, as they are typed."""
    return [
        word for name, value in model.changed.items() for word in [flag(name), *([] if value is True else [str(value)])]
    ]


def _step(title: str, arguments: list[str]) -> None:
    from deepthink_cli.cli.main import run

    sys.stdout.flush()
    for line in ("", title, f"$ deepthink {shlex.join(arguments)}"):
        note(line)
    code = run(arguments)
    if code != ExitCode.DONE:
        error = InputError if code == ExitCode.USAGE else DeepThinkError
        raise error(f"the demo stopped: deepthink {arguments[0]} ended with {code}")


def _examples() -> Path:
    """The demo's data: inside an installed package, or in the examples of a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "demo_data", package.parent / "examples"):
        if (folder / "reviews" / "demos.jsonl").is_file():
            return folder
    raise DeepThinkError("the demo's data are missing from this installation; install deepthink-cli again")
