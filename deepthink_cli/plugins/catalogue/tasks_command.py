"""`deepthink tasks`: the built-in tasks, and a user's own."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, report, table, write_json
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


Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Task, group or task file to show.")]
Yaml = Annotated[bool, Flag(OUTPUT, "Print the task as a task file, as a start for your own.", variable=False)]


@about("tasks trec", group="Experiments")
@grouped
def tasks(
    name: Name = None,
    data_dir: DataDir = None,
    offline: Offline = False,
    yaml: Yaml = False,
    *,
    common: Annotated[CommonArguments, Without("quiet", "verbose")],
) -> None:
    """List the built-in tasks, or check and show one, or a file."""
    from deepthink_cli.tasks.sources import files_of, source_of

    source, chosen = source_of(data_dir, offline), _named(name)
    (one, *others) = chosen
    if yaml and others:
        raise InputError(f"--yaml: {name or 'the catalogue'} is {len(chosen)} tasks; name one, as in {one.name}")
    if yaml:
        return _print_yaml(one)
    counted = _counted(one, source) if not others and (data_dir is not None or files_of(one)) else {}
    if common.as_json:
        described = []
        for task in chosen:
            demonstration, query = _prompt(task)
            prompts = {"example_prompt": demonstration, "example_query": query}
            described.append({**task.model_dump(exclude_none=True), **prompts, **counted})
        write_json(described if others else described[0])
    elif others:
        _many(chosen, whole=name is None)
    else:
        report(*_one(one, counted))


def _named(name: str | None) -> list[Task]:
    """The tasks of this name, all built-in tasks, or the checked tasks of a file."""
    from deepthink_cli.tasks.catalogue import built_in, find_tasks
    from deepthink_cli.tasks.files import SUFFIXES, validated

    if name is None:
        return list(built_in().values())
    if name.endswith(SUFFIXES):
        return validated(name)
    try:
        return find_tasks([name])
    except InputError as error:  # the name is an argument here
        raise InputError(*(Problem(each.reason, place=name) for each in error.problems)) from error


def _prompt(task: Task) -> tuple[str, str]:
    """The task's example row as a demonstration, and as a query without the label."""
    from deepthink_cli.tasks.files import example_query

    query = example_query(task, "task")
    assert query.gold is not None
    return task.prompt.demonstrations([(query.text, query.gold)]), task.prompt.query(query.text)


def _counted(task: Task, source: Source) -> dict[str, Any]:
    """Rows and labels under every protocol, and the rows skipped or excluded from demonstrations, by reason.

    Nothing, with a note, if the rows are not there.
    """
    from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set

    counts: dict[str, Any] = {}
    try:
        for protocol in task.protocols:
            evaluated = evaluation_set(task, protocol, source)
            labels = Counter(query.gold for query in evaluated) if task.labels else {}
            counts[protocol] = {
                "split": evaluated.split,
                "rows": len(evaluated),
                "labels": {label: labels[label] for label in task.labels or []},
                "skipped": dict(evaluated.skipped),
                "left_out": dict(draw_demonstrations(task, evaluated).left_out),
            }
    except InputError as error:
        note(f"the rows could not be counted: {error.messages[0]}")
        return {}
    return {"counted": counts}


def _print_yaml(task: Task) -> None:
    import sys

    import yaml

    definition = task.model_dump(exclude_defaults=True, exclude_none=True)
    text = yaml.safe_dump(definition, sort_keys=False, allow_unicode=True)
    if any(line != printable(line) for line in text.split("\n")):
        text = yaml.safe_dump(definition, sort_keys=False)
    sys.stdout.write(text)


def _candidates(task: Task, of_rows: str) -> str:
    """The labels of a task, `of_rows` where every row has its own, and that answers are generated where they are."""
    return ", ".join(task.labels) if task.labels else of_rows if task.free is None else "none: generated"


def _one(task: Task, counted: dict[str, Any]) -> Iterator[str]:
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
        hub = ", ".join(split.url for split in task.splits.values() if split.url) or "none"
        if task.hub is not None:
            hub = f"{task.hub.path}{f' ({task.hub.config})' if task.hub.config else ''} at {task.hub.revision}"
        yield f"hub             {hub}"
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
    for protocol, counts in counted.get("counted", {}).items():
        by_label = ", ".join(f"{label} {count:,}" for label, count in counts["labels"].items())
        labels = f" ({by_label})" if by_label else ""
        yield from ["", f"Counted under protocol {protocol}: split {counts['split']}, {counts['rows']:,} rows{labels}"]
        for title, reasons in (("skipped", counts["skipped"]), ("never demonstrations", counts["left_out"])):
            yield from (f"  {title}: {count} rows: {reason}" for reason, count in reasons.items())


def _indented(text: str, margin: str) -> list[str]:
    return textwrap.indent(text, margin).split("\n")


def _many(tasks: list[Task], whole: bool) -> None:
    """A table of the tasks; with `whole`, of those alone that stand in no folder, and the groups with their sizes."""
    lines = []
    for task in (each for each in tasks if not whole or "/" not in each.name):
        rows = [
            str(task.protocols[name].rows or "") if name in task.protocols else "" for name in ("paper", "official")
        ]
        number = task.candidates.number if task.candidates else None
        candidates = textwrap.shorten(_candidates(task, f"{number or 'each its'} own"), 36, placeholder=" ...")
        lines.append([task.name, str(task.shots), *rows, candidates])
    report(table("task", "shots", "paper", "official", "candidates", rows=lines))
    if whole:
        from deepthink_cli.tasks.catalogue import groups

        sizes = ", ".join(f"{group} ({len(members)})" for group, members in groups().items() if "/" not in group)
        report("", *textwrap.wrap(f"groups: {sizes}", 80, break_long_words=False, break_on_hyphens=False))
        report("", "deepthink tasks NAME shows a task or the tasks of a group.")
