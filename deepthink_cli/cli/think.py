"""`deepthink think`: read demonstrations T times and store the memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.calibration.registry import CorrectionOptions
from deepthink_cli.cli.about import about
from deepthink_cli.cli.calibrate import if_typed
from deepthink_cli.cli.console import Show, counted, note, report, write_json
from deepthink_cli.cli.data_options import (
    LABELLED_ROWS,
    ChatArguments,
    DataDir,
    LabelSeparator,
    PromptArguments,
    ProtocolName,
    RowArguments,
    TaskName,
    task_words,
)
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import NEW_MODEL, CommonArguments, tell_of_toy
from deepthink_cli.cli.values import check_given, read_by
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.events import Note, Tell, Warn
from deepthink_cli.io.text import size
from deepthink_cli.method import MethodOptions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import OUTPUT, Flag, TokenIds
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.techniques.registry import TechniqueOptions

if TYPE_CHECKING:
    from deepthink_cli.data.examples import DemonstrationSet
    from deepthink_cli.data.source import RowSource
    from deepthink_cli.make_memory import Origin, ThinkPlan, ThinkResult
    from deepthink_cli.provenance import TokenizedDemonstrations
    from deepthink_cli.tasks.sources import Source


LABELS, CHARACTERS = 8, 60  # the most labels, and characters of each field of the example, that are shown


def planned(plan: ThinkPlan, chosen_field: bool) -> list[str]:
    """The lines before the readings; `chosen_field` says that the label field was not named but taken as the last."""
    demonstrations = plan.demonstrations
    field = demonstrations.template.label_field
    whence = f" (field {field!r}; --label-field for another)" if chosen_field else ""
    by_label = counts(demonstrations)
    labels = ", ".join(counted(count, _short(label)) for label, count in list(by_label.items())[:LABELS])
    labels += f", ... ({len(by_label)} labels)" if len(by_label) > LABELS else ""
    labels = labels or "every row has candidates of its own"
    return [f"template  {example(demonstrations)}", f"labels    {labels}{whence}"]


def example(demonstrations: TokenizedDemonstrations) -> str:
    """The first demonstration in its template, with long fields shortened."""
    template, first = demonstrations.template, demonstrations.examples[0]
    texts = {name: _short(value) for name, value in template.values(first.text).items()}
    return template.query(texts) + demonstrations.word(first.label)


def counts(demonstrations: TokenizedDemonstrations) -> dict[str, int]:
    """How many demonstrations have each label, as the model reads it; empty if they have their own candidates."""
    return {demonstrations.word(label): count for label, count in demonstrations.label_counts.items()}


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - 3] + "..."


def as_json(plan: ThinkPlan, warnings: list[str]) -> dict[str, Any]:
    """The fields of `think --json` beside the memory's metadata."""
    return {
        "label_field": plan.demonstrations.template.label_field,
        "label_counts": counts(plan.demonstrations),
        "example": example(plan.demonstrations),
        "warnings": warnings,
    }


Demos = Annotated[
    str | None,
    typer.Argument(metavar="DEMOS", help=f"Solved examples: {LABELLED_ROWS}; - for stdin. Optional with --task."),
]
Output = Annotated[Path, Flag(OUTPUT, "Output file of the memory.", "FILE", short="-o", variable=False)]
DryRun = Annotated[bool, Flag(OUTPUT, "Print the plan; load no weights, write nothing.", variable=False)]


@about(
    "think demos.jsonl -m gpt2 -T 5 --eta 0.01 -o mem.safetensors",
    first="output model iterations eta keep chat calibrate template label_field task shots",
)
@grouped
def think(
    context: typer.Context,
    demos: Demos = None,
    output: Output = Path("memory.safetensors"),
    *,
    model: Annotated[Given[ModelOptions], Without("batch_tokens"), NEW_MODEL],
    method: Given[MethodOptions],
    technique: Given[TechniqueOptions],
    correction: Given[CorrectionOptions],
    reading: RowArguments,
    prompt: PromptArguments,
    label_separator: LabelSeparator = None,
    tokens: TokenIds = "prompt",
    chat: ChatArguments,
    task: TaskName = None,
    drawing: Annotated[Given[TaskOptions], Without("limit")],
    protocol: ProtocolName = "official",
    data_dir: DataDir = None,
    dry_run: DryRun = False,
    common: CommonArguments,
) -> None:
    """Read solved examples T times and store the memory in a file."""
    from deepthink_cli.make_memory import Origin, plan_thinking, think_and_save
    from deepthink_cli.outputs import check_memory_apart
    from deepthink_cli.tasks.sources import source_of

    problems, show = Problems(), Show(common, bar=not common.as_json)
    paths: dict[str, Any] = {"model": model.model, "task": task, "data_dir": data_dir, "config": common.config}
    paths |= {"template": prompt.template, "labels": prompt.labels}
    problems.tried(lambda: check_memory_apart(output, read_by(demos, **paths)))
    problems.tried(check_given, context, "think")
    model_options = problems.tried(model.checked)
    technique_options = problems.tried(technique.checked)
    stored = problems.tried(_correction, context, correction)
    method_options = problems.tried(_readings, method, technique_options)
    task_options = problems.tried(drawing.checked)
    as_chat = problems.tried(lambda: chat.value)
    source = problems.tried(source_of, data_dir, model.offline)
    read = problems.tried(_read, demos, task is None, reading, prompt, label_separator, show)
    problems.raise_any()
    rows, given = read
    origin = Origin()
    if given is None:
        given, origin = _of_task(str(task), rows, protocol, source, task_options, show)
    with show as tell:
        tell_of_toy(model, tell)
        warnings = _warnings(given, rows, prompt, tell) if task is None else []
        demonstrations = replace(given, template=replace(given.template, tokens=tokens), chat=as_chat)
        plan = plan_thinking(demonstrations, model_options, method_options, technique_options, stored, origin, tell)
        chosen_field = task is None and prompt.template is None and prompt.label_field is None
        if dry_run:
            values = {**plan.as_json(), **as_json(plan, warnings), "file": str(output)}
            return write_json(values) if common.as_json else _show_plan(values, plan, chosen_field)
        for line in planned(plan, chosen_field):
            tell(Note(line))
        result = think_and_save(plan, output, tell)
    _report(plan, result, None if task is None else task_words(task, source), output, common, warnings)


def _read(
    demos: str | None, alone: bool, reading: RowArguments, prompt: PromptArguments, separator: str | None, tell: Tell
) -> tuple[RowSource | None, DemonstrationSet | None]:
    """The rows of a file, if one is named, and their demonstrations if they are read `alone`, without a task."""
    from deepthink_cli.data.examples import read_demonstrations

    rows = reading.source(demos, prompt.labels, tell)
    if not alone:
        return rows, None
    if rows is None:
        raise InputError("DEMOS: no demonstrations; give a file of solved examples, or --task NAME")
    return rows, read_demonstrations(rows, *prompt.decoded(), separator)


def _of_task(
    name: str, demos: RowSource | None, protocol: str, source: Source, options: TaskOptions, tell: Tell
) -> tuple[DemonstrationSet, Origin]:
    """The demonstrations in the prompt of a task, of a file or drawn from the task's rows."""
    from deepthink_cli.make_memory import Origin
    from deepthink_cli.tasks.catalogue import find_task
    from deepthink_cli.tasks.items import demonstrations_for
    from deepthink_cli.tasks.rows import draw

    task = find_task(name)
    if demos is not None:
        return demonstrations_for(task, demos), Origin(task.name)
    return draw(task, protocol, source, options, tell).demonstrations, Origin(task.name, options.seed)


def _correction(context: typer.Context, correction: Given[CorrectionOptions]) -> CorrectionOptions:
    """The correction to store; raises InputError for a correction that is estimated from rows."""
    stored = if_typed(context, correction).checked()
    _ = stored.of_texts
    return stored


def _readings(method: Given[MethodOptions], technique: TechniqueOptions | None) -> MethodOptions:
    """The options of the readings: those that are given, or of the one reading that a technique trains.

    The technique is None if its options are wrong.
    """
    from deepthink_cli.techniques.base import Trained

    if technique is not None and isinstance(technique.chosen, Trained):
        return MethodOptions.checked(iterations=1)
    options = method.checked()
    _ = options.kept  # raises for iterations beyond T
    return options


def _show_plan(values: dict[str, Any], plan: ThinkPlan, chosen_field: bool) -> None:
    largest = "no limit" if values["largest"] is None else f"at most {values['largest']}"
    stored = f"{len(values['kept'])} kept, about {size(values['file_bytes'])} on disk"
    seen = values["window"]
    window = "" if seen is None else ", window {tokens} in {layers} of {of_layers} layers".format(**seen)
    read = f"{values['demonstrations']} demonstrations, L = {values['tokens']} tokens ({largest})"
    report(
        *planned(plan, chosen_field),
        f"model     {values['model']} ({values['architecture']}, {values['dtype']} on {values['device']})",
        f"read      {read}",
        f"attention up to {values['tokens_attended']} tokens, context {values['context'] or 'without limit'}{window}",
        f"passes    {values['passes']} ({plan.options.method.update}, {values['positions']} positions)",
        f"memory    {size(values['memory_bytes'])} an iteration, {stored}",
        f"file      {values['file']} (not written: this is a dry run)",
    )


def _warnings(
    demonstrations: DemonstrationSet, rows: RowSource | None, prompt: PromptArguments, tell: Tell
) -> list[str]:
    """Warn of probable mistakes in the demonstrations; returns the warnings."""
    from deepthink_cli.data.field_warnings import field_warnings

    messages = field_warnings(demonstrations, prompt.labels is not None, rows is not None and rows.has_header)
    for message in messages:
        tell(Warn(message))
    return messages


def _report(
    plan: ThinkPlan, result: ThinkResult, task: str | None, output: Path, common: CommonArguments, warnings: list[str]
) -> None:
    """Print the memory that was made and the next commands; `task` are the words that name its rows to `eval`."""
    from deepthink_cli.artifact.format import summary

    if common.as_json:
        values = {**summary(result.header), "seconds": result.seconds, **as_json(plan, warnings)}
        write_json({**values, "next": result.advice})
    rows = "LABELLED" if task is None else f"--task {task}"
    following = f"next: deepthink predict {output} INPUTS, or eval {output} {rows}"
    readings, stored = plan.options.iterations, result.header.metadata.calibrated
    work = "read once" if readings == 1 else f"read {readings} times"
    if plan.tuning is not None:
        work = f"trained in {plan.tuning.steps} steps"
    kept = "" if plan.options.kept == (readings,) else f", T = {', '.join(map(str, plan.options.kept))}"
    took = f"{len(plan.demonstrations.token_ids)} tokens {work}, {result.seconds:.1f} s"
    wrote = f"wrote {output} ({size(result.header.size)}{kept}): {took}"
    corrected = [f"corrected by {stored}"] if stored else []
    for line in (wrote, *corrected, *(f"next: {each}" for each in result.advice), following):
        note(line, common.quiet)
