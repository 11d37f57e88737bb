"""`deepthink think`: read demonstrations T times and store the memory."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.console import note, report, write_json
from deepthink_cli.cli.data_options import (
    ChatArguments,
    DataDir,
    DrawingArguments,
    PromptArguments,
    ProtocolName,
    RowFormat,
    TaskName,
    row_source,
)
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.labels import label_list
from deepthink_cli.cli.method_options import MethodArguments, TechniqueArguments
from deepthink_cli.cli.options import OUTPUT, CommonArguments, ModelArguments, tell_of_toy
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.show import Show
from deepthink_cli.cli.think_summary import as_json, done, planned
from deepthink_cli.cli.values import check_given, pattern, unescaped
from deepthink_cli.errors import InputError, Problems
from deepthink_cli.io.text import size

if TYPE_CHECKING:
    from deepthink_cli.data.examples import DemonstrationSet
    from deepthink_cli.data.rows import RowSource
    from deepthink_cli.options import MethodOptions, TaskOptions, TechniqueOptions
    from deepthink_cli.tasks.sources import Source
    from deepthink_cli.workflows.events import Tell
    from deepthink_cli.workflows.think import ThinkPlan, ThinkResult

Demos = Annotated[
    str | None,
    typer.Argument(
        metavar="[DEMOS]",
        help="Solved examples: JSON Lines, JSON, CSV, TSV or Parquet, also .gz or .zst; - for stdin. "
        "Optional with --task.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="Output file of the memory.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", rich_help_panel=OUTPUT, help="Print the plan; load no weights, write nothing.")
]


@dataclass(frozen=True)
class Origin:
    """The task and the seed of a memory's demonstrations; `typed` are the words that name its rows to `eval`."""

    task: str | None = None
    seed: int | None = None
    typed: str | None = None


@grouped
def think(
    context: typer.Context,
    demos: Demos = None,
    output: Output = Path("memory.safetensors"),
    *,
    model: Annotated[ModelArguments, Without("batch_tokens")],
    method: MethodArguments,
    technique: TechniqueArguments,
    row_format: RowFormat = None,
    prompt: PromptArguments,
    chat: ChatArguments,
    task: TaskName = None,
    drawing: DrawingArguments,
    protocol: ProtocolName = "official",
    data_dir: DataDir = None,
    dry_run: DryRun = False,
    common: CommonArguments,
) -> None:
    """Read solved examples T times and store the memory in a file."""
    from deepthink_cli.tasks.sources import source_of
    from deepthink_cli.workflows.outputs import check_apart
    from deepthink_cli.workflows.selected import read_selected
    from deepthink_cli.workflows.think import plan_thinking, think_and_save

    problems = Problems()
    paths: dict[str, Any] = {"model": model.model, "adapter": model.adapter}
    paths |= {"task": task, "data_dir": data_dir, "config": common.config}
    problems.result(
        lambda: check_apart(output, read_by(demos, template=prompt.template, labels=prompt.labels, **paths))
    )
    problems.result(lambda: check_given(context, "think"))
    model_options = problems.result(model.checked)
    technique_options = problems.result(technique.checked)
    method_options = problems.result(lambda: _readings(method, technique_options))
    task_options = problems.result(drawing.checked)
    as_chat = chat.value
    source = problems.result(lambda: source_of(data_dir, model.offline))
    rows = problems.result(lambda: row_source(demos, row_format))
    if task is None:
        demonstrations, origin = problems.result(lambda: _from_rows(rows, prompt)), Origin()
        problems.raise_any()
    else:
        problems.raise_any()
        demonstrations, origin = _from_task(task, rows, protocol, source, task_options, Show(common))
    with Show(common, bar=not common.json) as tell:
        tell_of_toy(model, tell)
        warnings = _warnings(demonstrations, prompt, tell) if task is None else []
        demonstrations = replace(demonstrations, chat=as_chat)
        chosen = None if demos is None else read_selected(demos, demonstrations.examples, tell)
        origin_of = (origin.task, origin.seed, tell, chosen, technique_options)
        plan = plan_thinking(demonstrations, model_options, method_options, *origin_of)
        if dry_run:
            _show_plan({**plan.as_json(), "file": str(output)}, plan, common.json)
            return
        _tell_plan(plan, task is None and prompt.template is None and prompt.label_field is None, tell)
        result = think_and_save(plan, output, tell)
    _report(plan, result, origin, output, common, warnings)


def _tell_plan(plan: ThinkPlan, guessed: bool, tell: Show) -> None:
    """Note what will be read; `guessed` says that the template and the label's field were taken from the rows."""
    from deepthink_cli.workflows.events import Note

    for line in planned(plan, guessed):
        tell(Note(line))


def _from_rows(demos: RowSource | None, prompt: PromptArguments) -> DemonstrationSet:
    from deepthink_cli.data.examples import read_demonstrations
    from deepthink_cli.data.template import SEPARATOR

    if demos is None:
        raise InputError("DEMOS: no demonstrations; give a file of solved examples, or --task NAME")
    separator = SEPARATOR if prompt.separator is None else unescaped(prompt.separator)
    return read_demonstrations(
        demos, pattern(prompt.template), prompt.label_field, label_list(prompt.labels), separator
    )


def _from_task(
    name: str, demos: RowSource | None, protocol: str, source: Source, options: TaskOptions, tell: Tell
) -> tuple[DemonstrationSet, Origin]:
    from deepthink_cli.tasks.catalogue import find_task
    from deepthink_cli.tasks.columns import demonstrations_for
    from deepthink_cli.workflows.task_rows import draw

    task = find_task(name)
    typed = name if source.data_dir is None else shlex.join([name, "--data-dir", str(source.data_dir)])
    if demos is not None:
        return demonstrations_for(task, demos), Origin(task.name, None, typed)
    return draw(task, protocol, source, options, tell).demonstrations, Origin(task.name, options.seed, typed)


def _readings(method: MethodArguments, technique: TechniqueOptions | None) -> MethodOptions:
    """The options of the readings: those that are given, or of the one reading that a technique trains."""
    from deepthink_cli.options import MethodOptions

    if technique is not None and technique.trains:
        return MethodOptions.checked(iterations=1)
    return method.checked()


def _show_plan(values: dict[str, Any], plan: ThinkPlan, json: bool) -> None:
    if json:
        write_json(values)
        return
    largest = "no limit" if values["largest"] is None else f"at most {values['largest']}"
    labels = ", ".join(values["labels"]) or "per input"
    stored = f"{len(values['kept'])} kept, about {size(values['file_bytes'])} on disk"
    seen = values["window"]
    window = "" if seen is None else ", window {tokens} in {layers} of {of_layers} layers".format(**seen)
    read = f"{values['demonstrations']} demonstrations, L = {values['tokens']} tokens ({largest}), labels {labels}"
    report(
        f"model      {values['model']} ({values['architecture']}, {values['dtype']} on {values['device']})",
        f"read       {read}",
        f"attention  up to {values['tokens_attended']} tokens, context {values['context'] or 'without limit'}{window}",
        f"passes     {values['passes']} ({plan.options.method.update}, {values['positions']} positions)",
        f"memory     {size(values['memory_bytes'])} an iteration, {stored}",
        f"file       {values['file']} (not written: this is a dry run)",
    )


def _warnings(demonstrations: DemonstrationSet, prompt: PromptArguments, tell: Tell) -> list[str]:
    """Warn of demonstrations that may not be what was meant; returns the warnings."""
    from deepthink_cli.data.doubts import doubts
    from deepthink_cli.workflows.events import Warn

    messages = doubts(demonstrations, prompt.labels is not None)
    for message in messages:
        tell(Warn(message))
    return messages


def _report(
    plan: ThinkPlan, result: ThinkResult, origin: Origin, output: Path, common: CommonArguments, warnings: list[str]
) -> None:
    from deepthink_cli.artifact.format import summary

    if common.json:
        write_json({**summary(result.header), "seconds": result.seconds, **as_json(plan, warnings)})
    rows = f"--task {origin.typed}" if origin.task else "LABELLED"
    following = f"next: deepthink predict {output} INPUTS    or: deepthink eval {output} {rows}"
    for line in (*done(plan, result, output), following):
        note(line, common.quiet)
