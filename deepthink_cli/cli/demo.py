"""`deepthink demo`: both stages and what they give, on files of the package, with the built-in model or another one."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import Show, note, report, table
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments
from deepthink_cli.errors import DeepThinkError, ExitCode, InputError
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.model.options import POCKET, ModelOptions

if TYPE_CHECKING:
    from rich.table import Table

    from deepthink_cli.data.examples import DemonstrationSet, Query
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.evaluation.by_iteration import Evaluation

INPUTS = 4  # inputs of the predict step
AGAIN = 20  # inputs for the timing of a new reading before each input
ETAS, AT = (0.01, 0.1), (1, 2, 4, 8, 12)
ROWS = {"reviews": "sentences.jsonl", "news": "articles.jsonl"}  # the labelled rows of each folder
_COLUMNS = ("log p", "accuracy", "changed")
_LEGEND = (
    "log p: mean log-probability of the true label, in nats, higher is better; changed: labels that differ from those "
    "of T = 1, plain in-context learning; eta = 0.01 is the paper's."
)
_CAUTION = (
    "That is one choice of demonstrations: with others thinking may gain, change nothing, or lose; "
    "deepthink run --seeds 5 compares several."
)
_NEXT = (
    "One of these curves, with eval after it: deepthink think --eta 0.1 -T 12 --keep 1,2,4,8,12.",
    'Now with your own data, ten lines of {"text": "...", "label": "..."}, and any causal language model:',
    "  deepthink think demos.jsonl -m gpt2 -T 5 -o mem.safetensors",
    "  deepthink predict mem.safetensors inputs.jsonl -o labels.jsonl",
    "  deepthink eval mem.safetensors labelled.jsonl",
)


@about("demo")
@grouped
def demo(
    *,
    model: Annotated[Given[ModelOptions], Without("batch_tokens"), NEW_MODEL],
    common: Annotated[CommonArguments, Without("json", "verbose", "config")],
) -> None:
    """Show both stages, what thinking changes and a memory saves.

    The default is the built-in model, which is offline and takes seconds.
    """
    model = model.but(model=model.model or POCKET)
    options, data = model.checked(), _examples()
    words = [word for name, value in model.changed.items() for word in (flag(name), value) if word is not True]
    quiet = ["-q"] if common.quiet else []
    with temporary_folder() as folder:
        memory, few = str(folder / "reviews.safetensors"), folder / "few.jsonl"
        rows = (data / "reviews" / "labelled.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [{"review": json.loads(row)["review"]} for row in rows[:: len(rows) // INPUTS][:INPUTS]]
        few.write_text("".join(json.dumps(row) + "\n" for row in texts), encoding="utf-8")
        _step(
            "Think: read the demonstrations 5 times, and store the memory of the last reading in a file.",
            ["think", str(data / "reviews" / "demos.jsonl"), *map(str, words), "-T", "5", "-o", memory, *quiet],
        )
        _step("Inspect: show what the memory contains.", ["inspect", memory])
        _step("Predict: label new inputs with it.", ["predict", memory, str(few), *quiet])
    with Show(common) as tell:
        _measure(options, data, tell)
    report("", _CAUTION)
    for line in ("", *_NEXT):
        note(line)


def _step(title: str, arguments: list[str]) -> None:
    from deepthink_cli.cli.main import run

    sys.stdout.flush()
    for line in ("", title, f"$ deepthink {shlex.join(arguments)}"):
        note(line)
    code = run(arguments)
    if code != ExitCode.DONE:
        error = InputError if code == ExitCode.USAGE else DeepThinkError
        raise error(f"the demo stopped: deepthink {arguments[0]} ended with {code}")


def _measure(options: ModelOptions, data: Path, tell: Show) -> None:
    """Load the model; print the changes by thinking on the rows of each folder, and the time that one reading saves."""
    from deepthink_cli.data.examples import read_demonstrations, read_queries
    from deepthink_cli.engine.opening import find_model, load
    from deepthink_cli.events import silent

    engine = load(find_model(options, silent), silent)
    report("", f"What thinking changes, with {engine.identity.id}. {_LEGEND}")
    for name, file in ROWS.items():
        read = read_demonstrations(str(data / name / "demos.jsonl"))
        rows = list(read_queries(str(data / name / file), read.template, read.labels, labelled=True))
        by_eta = {eta: _evaluated(engine, read, rows, eta, tell) for eta in ETAS}
        report("", f"{name}: {len(read.examples)} demonstrations, {len(rows)} rows of {file}.", "", curves(by_eta), "")
        report(*(f"eta = {eta:g}: {outcome(evaluation, AT[-1])}" for eta, evaluation in by_eta.items()))
    report("", "What a memory saves: the demonstrations are read once.", *_saved(engine, read, rows))


def _evaluated(
    engine: Engine, demonstrations: DemonstrationSet, rows: Sequence[Query], eta: float, tell: Show
) -> Evaluation:
    """The evaluation of rows after each of the numbers of readings `AT`."""
    from deepthink_cli.evaluation.by_iteration import Evaluator
    from deepthink_cli.events import Progress
    from deepthink_cli.method import Method
    from deepthink_cli.model.tokens import tokenize_demonstrations
    from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, predicted, predictions
    from deepthink_cli.thinking import think
    from deepthink_cli.updates.gate import Gate

    tokenized = tokenize_demonstrations(engine.tokenizer, demonstrations)
    memories = [each for each in think(engine, tokenized, Method(AT[-1], Gate(eta))) if each.iteration in AT]
    evaluator, progress = Evaluator(AT, tokenized.labels), Progress(f"eta {eta}", 0, len(rows))
    for part in predictions(engine, [memories], rows, size=EVALUATED, skip=UNSCORABLE, tell=tell, progress=progress):
        for prediction in predicted(part):
            evaluator.add(prediction)
    return evaluator.result()


def curves(by_eta: Mapping[float, Evaluation]) -> Table:
    """Log-probability of the true label, accuracy and changed labels over T, side by side for every eta."""
    columns = [f"{name}{f', eta {eta:g}' if name == 'log p' else ''}" for eta in by_eta for name in _COLUMNS]
    rows = []
    for iteration in next(iter(by_eta.values())).results:
        cells = [str(iteration)]
        for evaluation in by_eta.values():
            changes, log_p = evaluation.changes.get(iteration), evaluation.probabilities[iteration].log_probability
            accuracy = evaluation.results[iteration].accuracy
            cells += [f"{log_p:.3f}", f"{accuracy:.1%}", str(changes.changed if changes else 0)]
        rows.append(cells)
    return table("T", *columns, rows=rows)


def outcome(evaluation: Evaluation, iteration: int) -> str:
    """The changes from T = 1 to T = `iteration`, with an exact paired test."""
    from deepthink_cli.evaluation.metrics import ALPHA

    changes = evaluation.changes[iteration]
    points = 100 * (evaluation.results[iteration].accuracy - evaluation.results[1].accuracy)
    verdict = "no more than chance can explain" if changes.p >= ALPHA else "a gain" if points > 0 else "a loss"
    return (
        f"T = {iteration} changes {changes.changed} of {evaluation.n} labels: fixes {changes.fixed}, breaks "
        f"{changes.broken}, {points:+.1f} points; exact McNemar p = {changes.p:.2g}: {verdict}."
    )


def _saved(engine: Engine, demonstrations: DemonstrationSet, rows: Sequence[Query]) -> list[str]:
    """The times of scoring after one reading, and with the demonstrations read again before each input."""
    from deepthink_cli.engine.base import Reading
    from deepthink_cli.model.tokens import query_tokenizer, tokenize_demonstrations

    tokenized = tokenize_demonstrations(engine.tokenizer, demonstrations)
    queries, reading = query_tokenizer(engine.tokenizer, tokenized)(rows), Reading(tokenized.token_ids)
    started = time.perf_counter()
    (memory,) = engine.read([reading])
    read = time.perf_counter() - started
    (sums,) = engine.score([memory], engine.plan(queries))
    each = (time.perf_counter() - started - read) / len(queries)
    again, difference, started = queries[:AGAIN], 0.0, time.perf_counter()
    for query, before in zip(again, sums, strict=False):
        ((after,),) = engine.score(engine.read([reading]), engine.plan([query]))
        difference = max(difference, *(abs(one - other) for one, other in zip(before, after, strict=True)))
    anew = (time.perf_counter() - started) / len(again)
    return [
        f"One reading of {len(reading)} tokens: {1000 * read:.0f} ms. After it, {len(queries)} inputs: "
        f"{1000 * each:.1f} ms each.",
        f"Reading them again before each input, {len(again)} inputs: {1000 * anew:.1f} ms each: {anew / each:.1f} "
        f"times as long, for the same scores (largest difference {difference:.1g} nats).",
    ]


def _examples() -> Path:
    """The demo's data: inside an installed package, or in the examples of a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "demo_data", package.parent / "examples"):
        if (folder / "reviews" / "demos.jsonl").is_file():
            return folder
    raise DeepThinkError("the demo's data are missing from this installation; install deepthink-cli again")
