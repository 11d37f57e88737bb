"""`deepthink demo`: every step on one model, with the commands that a user would type, and what thinking changed."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

from deepthink_cli.cli.console import note, report
from deepthink_cli.cli.data_options import DataDir
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments, ModelArguments
from deepthink_cli.errors import DeepThinkError, ExitCode, InputError
from deepthink_cli.options import POCKET

INPUTS = 4  # labelled by the predict step
ROWS = 200  # of SST-2, with --data-dir
METHOD = ("-T", "8", "--eta", "0.1")
_TASK = ("--task", "sst2")
Answers = dict[int, list[tuple[str, str]]]  # by iteration, the label given to every row and the true one
_CAUTION = (
    "That is one choice of demonstrations: with others thinking may gain, change nothing, or lose; "
    "deepthink run --seeds 5 compares several."
)


@grouped
def demo(
    *,
    model: Annotated[ModelArguments, Without("batch_tokens")],
    data_dir: DataDir = None,
    common: Annotated[CommonArguments, Without("json", "verbose", "config")],
) -> None:
    """Show think, inspect, predict and eval, by default on the built-in model, offline, in seconds.

    With --data-dir the demonstrations and rows are those of SST-2 in that directory.
    """
    model.checked()
    data = _examples()
    words, quiet = _words(replace(model, model=model.model or POCKET)), ["-q"] if common.quiet else []
    source = [] if data_dir is None else [*_TASK, "--data-dir", str(data_dir)]
    read = source or [str(data / "demos.jsonl")]
    with tempfile.TemporaryDirectory(prefix="deepthink-demo-") as folder:
        memory, few = Path(folder) / "reviews.safetensors", Path(folder) / "few.jsonl"
        _write_few(data / "labelled.jsonl", few, "text" if source else "review")
        _step(
            "Think: read the solved examples 8 times and store the memory of some of the readings.",
            ["think", *read, *words, *METHOD, "--keep", "1,2,3,5,8", "-o", str(memory), *quiet],
        )
        _step("Inspect: show what the memory contains.", ["inspect", str(memory)])
        if source:
            answers = _evaluate("Eval: accuracy over T.", memory, [*source, "--limit", str(ROWS)], quiet)
            chosen, reason = max(answers), f"T = {max(answers)} is fixed in this demo"
            rows = f"{len(answers[1])} rows of SST-2"
        else:
            title = "Eval: accuracy over T, on rows that choose T; T = 1 is plain in-context learning."
            tried = _right(_evaluate(title, memory, [str(data / "labelled.jsonl")], quiet))
            chosen = max(tried, key=lambda iteration: (sum(tried[iteration]), -iteration))
            reason = f"T = {chosen} was chosen on the {len(tried[1])} rows of labelled.jsonl"
            title = "Eval again: accuracy on other rows, which had no part in the choice."
            answers = _evaluate(title, memory, [str(data / "sentences.jsonl")], quiet)
            rows = f"{len(answers[1])} rows of sentences.jsonl"
        _step(
            f"Predict: label new inputs with the memory of T = {chosen}.",
            ["predict", str(memory), str(few), "--iteration", str(chosen), *quiet],
        )
    compared = chosen if chosen > 1 else max(answers)
    report("", *_outcome(_right(answers), chosen, reason, rows), _bias(answers, compared), _CAUTION)
    for line in ("", *_NEXT):
        note(line)


_NEXT = (
    'Now with your own data, ten lines of {"text": "...", "label": "..."}, and any causal language model:',
    "  deepthink think demos.jsonl -m gpt2 -T 5 -o mem.safetensors",
    "  deepthink predict mem.safetensors inputs.jsonl -o labels.jsonl",
    "  deepthink eval mem.safetensors labelled.jsonl",
)


def _outcome(right: dict[int, list[bool]], chosen: int, reason: str, rows: str) -> list[str]:
    """What thinking changed, in words; `right` says for every iteration and row whether the label was correct."""
    from deepthink_cli.report.significance import discordant

    lines = [f"What thinking changed, on {rows}: {reason}; eta = {METHOD[-1]} is this demo's, the paper's is 0.01."]
    compared, would = (chosen, "") if chosen > 1 else (max(right), "with ")
    plain, thought = (sum(right[iteration]) / len(right[1]) for iteration in (1, compared))
    pairs = discordant(right[1], right[compared])
    verdict = "no more than chance can explain" if pairs.p >= 0.05 else "a gain" if thought > plain else "a loss"
    if chosen == 1:
        lines.append(f"So plain in-context learning is kept: {plain:.1%}.")
    return [
        *lines,
        f"T = 1: {plain:.1%}; {would}T = {compared}: {thought:.1%}, {100 * (thought - plain):+.1f} points: "
        f"corrected {pairs.gained}, spoilt {pairs.lost}; exact McNemar p = {pairs.p:.2g}: {verdict}.",
    ]


def _bias(answers: Answers, compared: int) -> str:
    """How often T = 1 and the T compared give the most frequent answer of T = 1, which shows a bias toward a label."""
    plain, thought = ([label for label, _ in answers[iteration]] for iteration in (1, compared))
    label = max(sorted(set(plain)), key=plain.count)
    true = sum(gold == label for _, gold in answers[1])
    return (
        f"T = 1 answers '{label}' for {plain.count(label)} of {len(plain)} rows, "
        f"T = {compared} for {thought.count(label)}; it is the true label of {true}."
    )


def _evaluate(title: str, memory: Path, rows: list[str], quiet: list[str]) -> Answers:
    """Show an evaluation; returns every answer with the true label."""
    samples = memory.with_name("samples.jsonl")
    _step(title, ["eval", str(memory), *rows, "--samples", str(samples), *quiet])
    answers: Answers = {}
    for line in samples.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        answers.setdefault(row["iteration"], []).append((row["label"], row["gold"]))
    return answers


def _right(answers: Answers) -> dict[int, list[bool]]:
    return {iteration: [label == gold for label, gold in pairs] for iteration, pairs in answers.items()}


def _write_few(labelled: Path, few: Path, field: str) -> None:
    rows = [json.loads(line) for line in labelled.read_text(encoding="utf-8").splitlines()]
    unlabelled = [{field: row["review"]} for row in rows[:: len(rows) // INPUTS][:INPUTS]]
    few.write_text("".join(json.dumps(row) + "\n" for row in unlabelled), encoding="utf-8")


def _words(model: ModelArguments) -> list[str]:
    """The options that differ from their defaults, as they are typed."""
    defaults = {field.name: field.default for field in fields(ModelArguments)}
    given = {name: value for name, value in asdict(model).items() if value != defaults[name]}
    flags = {name: f"--{name.replace('_', '-')}" for name in given}
    return [word for name, value in given.items() for word in ([flags[name]] + [str(value)] * (value is not True))]


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
    for folder in (package / "demo_data", package.parent / "examples" / "reviews"):
        if (folder / "demos.jsonl").is_file():
            return folder
    raise DeepThinkError("the demo's data are missing from this installation; install deepthink-cli again")
