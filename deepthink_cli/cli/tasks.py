"""`deepthink tasks`: what is built in, what a task is, and whether a task file is right."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli import options
from deepthink_cli.cli.console import WIDTH, note, report, table, write_json
from deepthink_cli.cli.tasking import source_of
from deepthink_cli.errors import InputError
from deepthink_cli.io.text import printable

if TYPE_CHECKING:
    from deepthink_cli.tasks.format import Task
    from deepthink_cli.tasks.sources import Source

VALIDATE = "validate"

Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Task, group or task file to show; or: validate FILE.")
]
File = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Task file to validate.")]
Yaml = Annotated[
    bool,
    typer.Option(
        "--yaml", rich_help_panel=options.OUTPUT, help="Print the task as a task file, to start your own from."
    ),
]


def tasks(
    name: Name = None,
    file: File = None,
    data_dir: options.DataDir = None,
    offline: options.Offline = False,
    yaml: Yaml = False,
    json: options.Json = False,
    debug: options.Debug = False,
    config: options.Config = None,
) -> None:
    """List the built-in tasks; show one with its prompt; count its rows (--data-dir); validate a task file."""
    from deepthink_cli.tasks.catalogue import built_in, find_tasks
    from deepthink_cli.tasks.files import validated

    source = source_of(data_dir, offline)
    if name == VALIDATE:
        if file is None:
            raise InputError("validate: name the task file, as in: deepthink tasks validate my_task.yaml")
        right = validated(file)
        for task in right:
            note(f"{file}: {task.name} is a task", json)
        if json:
            write_json({"file": str(file), "valid": True, "tasks": [task.name for task in right]})
        return
    if file is not None:
        raise InputError(f"{file}: only validate takes a file; did you mean: deepthink tasks validate {file}?")
    found = list(built_in().values()) if name is None else find_tasks([name])
    counted = _counted_all(found, source) if data_dir is not None else {}
    if yaml and len(found) > 1:
        raise InputError(f"--yaml: {name or 'the catalogue'} is {len(found)} tasks; name one, as in {found[0].name}")
    if yaml:
        _print_yaml(found)
    elif json:
        described = [{**_described(task), **counted.get(task.name, {})} for task in found]
        write_json(described[0] if len(described) == 1 else described)
    elif len(found) == 1:
        report(*_one(found[0], counted.get(found[0].name)))
    else:
        _many(found, counted, whole=name is None)


def _described(task: Task) -> dict[str, Any]:
    demonstration, query = _prompt(task)
    return {**task.model_dump(exclude_none=True), "example_prompt": demonstration, "example_query": query}


def _prompt(task: Task) -> tuple[str, str]:
    """The task's example row as a demonstration, and as a query with the label left open."""
    from deepthink_cli.tasks.files import example_query

    query = example_query(task, "task")
    assert query.gold is not None
    return task.prompt.demonstrations([(query.text, query.gold)]), task.prompt.query(query.text)


def _counted_all(found: list[Task], source: Source) -> dict[str, dict[str, Any]]:
    """The counts of every task whose rows are there; one note for the others."""
    counted, missing = {}, []
    for task in found:
        try:
            counted[task.name] = _counts(task, source)
        except InputError as error:
            missing.append(error.messages[0])
    if missing:
        note(f"{len(missing)} of {len(found)} tasks could not be counted; the first: {missing[0]}")
    return counted


def _counts(task: Task, source: Source) -> dict[str, Any]:
    """Rows and labels under every protocol, and what does not fit, from the data."""
    from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

    found: dict[str, Any] = {}
    for protocol in task.protocols:
        evaluated = evaluation_set(task, protocol, source)
        drawn = draw_demonstrations(task, evaluated)
        first = next(iter(evaluated))
        labels = Counter(query.gold for query in evaluated) if task.labels else {}
        found[protocol] = {
            "split": evaluated.split, "rows": len(evaluated), "labels": {label: labels[label] for label in task.labels or []},
            "skipped": dict(evaluated.skipped), "left_out": dict(drawn.left_out),
            "first_query": task.prompt.query(first.text), "first_candidates": list(first.candidates),
        }  # fmt: skip
    return {"counted": found}


def _print_yaml(found: list[Task]) -> None:
    import sys

    import yaml

    for task in found:
        says = task.model_dump(exclude_defaults=True, exclude_none=True)
        text = yaml.safe_dump(says, sort_keys=False, allow_unicode=True)
        if any(line != printable(line) for line in text.split("\n")):
            text = yaml.safe_dump(says, sort_keys=False)
        sys.stdout.write(text)


def _one(task: Task, counted: dict[str, Any] | None) -> Iterator[str]:
    demonstration, query = _prompt(task)
    candidates = ", ".join(task.labels) if task.labels else "every row's own"
    number = task.candidates.number if task.candidates else None
    yield f"{task.name}  {task.title}"
    yield ""
    yield f"template        {task.template!r}, separator {task.separator!r}"
    yield f"candidates      {candidates}{f' ({number})' if number else ''}"
    yield f"demonstrations  {task.shots} of split {task.demonstrations}, {task.sampling}"
    for name, protocol in task.protocols.items():
        rows = f", {protocol.rows:,} rows" if protocol.rows else ""
        yield f"{name:<16}split {protocol.split}{rows}{', a fixed sample' if protocol.sample else ''}"
    yield f"hub             {_hub(task)}"
    yield f"--data-dir      DIR/{task.folder}/SPLIT.jsonl"
    yield f"source          {task.source}"
    yield f"licence         {task.licence}"
    if task.groups:
        yield f"groups          {', '.join(task.groups)}"
    if task.note:
        yield f"note            {task.note}"
    yield from ["", "A demonstration, from a made-up row:", "", *_indented(demonstration.rstrip("\n"), "  ")]
    yield from ["", "The query of the same row:", "", *_indented(query + "▁", "  ")]
    for name, found in (counted or {}).get("counted", {}).items():
        yield from _counted(name, found)


def _counted(protocol: str, found: dict[str, Any]) -> Iterator[str]:
    labels = ", ".join(f"{label} {count:,}" for label, count in found["labels"].items())
    yield from [
        "",
        f"Counted under protocol {protocol}: split {found['split']}, {found['rows']:,} rows{f' ({labels})' if labels else ''}",
    ]
    for title, reasons in (("skipped", found["skipped"]), ("never demonstrations", found["left_out"])):
        yield from (f"  {title}: {count} rows: {reason}" for reason, count in reasons.items())
    yield from ["  first query:", "", *_indented(found["first_query"] + "▁", "    ")]
    yield f"    candidates: {' | '.join(found['first_candidates'])}"


def _indented(text: str, margin: str) -> list[str]:
    return textwrap.indent(text, margin).split("\n")


def _hub(task: Task) -> str:
    if task.hub is not None:
        return f"{task.hub.path}{f' ({task.hub.config})' if task.hub.config else ''} at {task.hub.revision}"
    urls = [split.url for split in task.splits.values() if split.url]
    return ", ".join(urls) or "none"


def _many(found: list[Task], counted: dict[str, Any], whole: bool) -> None:
    """A table of the tasks; with `whole`, families as one line and their members below."""
    alone = [task for task in found if "/" not in task.name] if whole else found
    rows = [_line(task, counted.get(task.name)) for task in alone]
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
        rows = {name: str(found["rows"]) for name, found in counted["counted"].items()}
    number = task.candidates.number if task.candidates else None
    candidates = ", ".join(task.labels) if task.labels else f"{number or 'each its'} own"
    shown = candidates if len(candidates) <= 62 else f"{candidates[:59]}..."
    return [task.name, str(task.shots), rows.get("paper", ""), rows.get("official", ""), shown]
