"""`deepthink tasks`: the built-in tasks, and the check of a task file."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import WIDTH, note, report, table, write_json
from deepthink_cli.cli.data_options import DataDir
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.errors import InputError, Problem
from deepthink_cli.io.text import printable
from deepthink_cli.model.options import Offline
from deepthink_cli.options import OUTPUT, Flag

if TYPE_CHECKING:
    from deepthink_cli.tasks.format import Task
    from deepthink_cli.tasks.sources import Source


VALIDATE = "validate"

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Task, group or task file to show; or: validate FILE.",
    ),
]
File = Annotated[Path | None, typer.Argument(metavar="FILE", help="Task file to validate.")]
Yaml = Annotated[
    bool,
    Flag(OUTPUT, "Print the task as a task file, as a start for your own.", variable=False),
]


@about("tasks trec")
@grouped
def tasks(
    name: Name = None,
    file: File = None,
    data_dir: DataDir = None,
    offline: Offline = False,
    yaml: Yaml = False,
    *,
    common: Annotated[CommonArguments, Without("quiet", "verbose")],
) -> None:
    """List the built-in tasks, show one, or validate a task file."""
    from deepthink_cli.tasks.catalogue import built_in, find_tasks
    from deepthink_cli.tasks.sources import files_of, source_of

    source = source_of(data_dir, offline)
    if name == VALIDATE:
        _validate(file, common.as_json)
        return
    if file is not None:
        raise InputError(f"{file}: only validate takes a file; did you mean: deepthink tasks validate {file}?")
    try:
        chosen = list(built_in().values()) if name is None else find_tasks([name])
    except InputError as error:  # the name is an argument here
        raise InputError(
            *(each if each.place else Problem(each.reason, place=name) for each in error.problems)
        ) from error
    countable = data_dir is not None or (len(chosen) == 1 and files_of(chosen[0]))
    counted = _counted_all(chosen, source) if countable else {}
    if yaml and len(chosen) > 1:
        raise InputError(f"--yaml: {name or 'the catalogue'} is {len(chosen)} tasks; name one, as in {chosen[0].name}")
    if yaml:
        _print_yaml(chosen)
    elif common.as_json:
        described = [{**_described(task), **counted.get(task.name, {})} for task in chosen]
        write_json(described[0] if len(described) == 1 else described)
    elif len(chosen) == 1:
        report(*_one(chosen[0], counted.get(chosen[0].name)))
    else:
        _many(chosen, counted, whole=name is None)


def _validate(file: Path | None, json: bool) -> None:
    from deepthink_cli.tasks.files import validated

    if file is None:
        raise InputError("validate: name the task file, as in: deepthink tasks validate my_task.yaml")
    valid = validated(file)
    for task in valid:
        note(f"{file}: {task.name} is a task", json)
    if json:
        write_json({"file": str(file), "valid": True, "tasks": [task.name for task in valid]})


def _described(task: Task) -> dict[str, Any]:
    demonstration, query = _prompt(task)
    return {**task.model_dump(exclude_none=True), "example_prompt": demonstration, "example_query": query}


def _prompt(task: Task) -> tuple[str, str]:
    """The task's example row as a demonstration, and as a query without the label."""
    from deepthink_cli.tasks.files import example_query

    query = example_query(task, "task")
    assert query.gold is not None
    return task.prompt.demonstrations([(query.text, query.gold)]), task.prompt.query(query.text)


def _counted_all(tasks: list[Task], source: Source) -> dict[str, dict[str, Any]]:
    """The counts of every task whose rows exist; one note for the others."""
    counted, missing = {}, []
    for task in tasks:
        try:
            counted[task.name] = _counts(task, source)
        except InputError as error:
            missing.append(error.messages[0])
    if missing:
        note(f"{len(missing)} of {len(tasks)} tasks could not be counted; the first: {missing[0]}")
    return counted


def _counts(task: Task, source: Source) -> dict[str, Any]:
    """Rows and labels under every protocol, and the rows skipped or excluded from demonstrations, by reason."""
    from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

    counts: dict[str, Any] = {}
    for protocol in task.protocols:
        evaluated = evaluation_set(task, protocol, source)
        drawn = draw_demonstrations(task, evaluated)
        first = next(iter(evaluated))
        labels = Counter(query.gold for query in evaluated) if task.labels else {}
        counts[protocol] = {
            "split": evaluated.split,
            "rows": len(evaluated),
            "labels": {label: labels[label] for label in task.labels or []},
            "skipped": dict(evaluated.skipped),
            "left_out": dict(drawn.left_out),
            "first_query": task.prompt.query(first.text),
            "first_candidates": list(first.candidates),
        }
    return {"counted": counts}


def _print_yaml(tasks: list[Task]) -> None:
    import sys

    import yaml

    for task in tasks:
        definition = task.model_dump(exclude_defaults=True, exclude_none=True)
        text = yaml.safe_dump(definition, sort_keys=False, allow_unicode=True)
        if any(line != printable(line) for line in text.split("\n")):
            text = yaml.safe_dump(definition, sort_keys=False)
        sys.stdout.write(text)


def _candidates(task: Task, of_rows: str) -> str:
    """The labels of a task, `of_rows` where every row has its own, and that answers are generated where they are."""
    return ", ".join(task.labels) if task.labels else of_rows if task.free is None else "none: generated"


def _one(task: Task, counted: dict[str, Any] | None) -> Iterator[str]:
    from deepthink_cli.tasks.sources import files_of

    demonstration, query = _prompt(task)
    candidates = _candidates(task, "every row's own")
    number = task.candidates.number if task.candidates else None
    yield f"{task.name}  {task.title}"
    yield ""
    yield f"template        {task.template!r}, separator {task.separator!r}"
    yield f"candidates      {candidates}{f' ({number})' if number else ''}"
    yield f"demonstrations  {task.shots} of split {task.demonstrations}, {task.sampling}"
    for name, protocol in task.protocols.items():
        rows = f", {protocol.rows:,} rows" if protocol.rows else ""
        yield f"{name:<16}split {protocol.split}{rows}{', a fixed sample' if protocol.sample else ''}"
    files = files_of(task)
    if files:
        yield f"rows            {', '.join(files)}"
    else:
        yield f"hub             {_hub(task)}"
        yield f"--data-dir      DIR/{task.folder}/SPLIT.jsonl"
    yield f"source          {task.source}"
    yield f"licence         {task.licence}"
    if task.groups:
        yield f"groups          {', '.join(task.groups)}"
    if task.note:
        yield f"note            {task.note}"
    yield from [
        "",
        f"A demonstration, from {'a made-up' if task.example else 'the first'} row:",
        "",
        *_indented(demonstration.rstrip("\n"), "  "),
    ]
    yield from ["", "The query of the same row:", "", *_indented(query + "▁", "  ")]
    for name, counts in (counted or {}).get("counted", {}).items():
        yield from _counted(name, counts)


def _counted(protocol: str, counts: dict[str, Any]) -> Iterator[str]:
    by_label = ", ".join(f"{label} {count:,}" for label, count in counts["labels"].items())
    labels = f" ({by_label})" if by_label else ""
    yield from ["", f"Counted under protocol {protocol}: split {counts['split']}, {counts['rows']:,} rows{labels}"]
    for title, reasons in (("skipped", counts["skipped"]), ("never demonstrations", counts["left_out"])):
        yield from (f"  {title}: {count} rows: {reason}" for reason, count in reasons.items())
    yield from ["  first query:", "", *_indented(counts["first_query"] + "▁", "    ")]
    yield f"    candidates: {' | '.join(counts['first_candidates'])}"


def _indented(text: str, margin: str) -> list[str]:
    return textwrap.indent(text, margin).split("\n")


def _hub(task: Task) -> str:
    if task.hub is not None:
        return f"{task.hub.path}{f' ({task.hub.config})' if task.hub.config else ''} at {task.hub.revision}"
    urls = [split.url for split in task.splits.values() if split.url]
    return ", ".join(urls) or "none"


def _many(tasks: list[Task], counted: dict[str, Any], whole: bool) -> None:
    """A table of the tasks; with `whole`, the tasks of a group are listed below the table instead."""
    listed = [task for task in tasks if "/" not in task.name] if whole else tasks
    rows = [_line(task, counted.get(task.name)) for task in listed]
    report(table("task", "shots", "paper", "official", "candidates", rows=rows))
    if whole:
        from deepthink_cli.tasks.catalogue import groups

        for group, members in groups().items():
            names = ", ".join(name.removeprefix(f"{group}/") for name in members)
            lines = textwrap.wrap(names, WIDTH - 4) if group.count("/") == 0 else []
            report("", f"{group}: {len(members)} tasks", *(f"  {line}" for line in lines))
        report("", "deepthink tasks NAME shows one; --task takes names, groups (run) and task files.")


def _line(task: Task, counted: dict[str, Any] | None) -> list[str]:
    rows = {name: str(protocol.rows or "") for name, protocol in task.protocols.items()}
    if counted:
        rows = {name: str(counts["rows"]) for name, counts in counted["counted"].items()}
    number = task.candidates.number if task.candidates else None
    candidates = _candidates(task, f"{number or 'each its'} own")
    shown = candidates if len(candidates) <= 62 else f"{candidates[:59]}..."
    return [task.name, str(task.shots), rows.get("paper", ""), rows.get("official", ""), shown]
