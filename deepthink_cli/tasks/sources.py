"""Read a task's rows from a directory of files, or from the hub at a pinned revision; the rows are the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.data.formats.lines import refuse_texts
from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import DeepThinkError, InputError, Problem, option
from deepthink_cli.io.hub import answers, forbidden_by, is_unreachable, quiet_libraries, unreachable
from deepthink_cli.tasks.format import Split, Task, all_matches

SUFFIXES = (".jsonl", ".parquet", ".csv", ".tsv")


@dataclass(frozen=True)
class Source:
    """The source of rows: the `FOLDER/SPLIT.jsonl` files of `data_dir`, or the hub if it is None."""

    data_dir: Path | None = None
    offline: bool = False


def source_of(data_dir: Path | None, offline: bool) -> Source:
    """The source of task rows; raises InputError if the data directory does not exist."""
    if data_dir is not None and not data_dir.is_dir():
        raise InputError.of("data_dir", data_dir, "no such directory")
    return Source(data_dir, offline)


def split_rows(task: Task, split: str, source: Source) -> Iterator[Row]:
    """Yield the rows of one split, in its order, in the hub's columns; a split's own file takes precedence.

    Raises InputError or DeepThinkError, with a fix, if the split cannot be read.
    """
    definition = task.splits.get(split, Split())
    if definition.file is not None:
        file = RowSource(definition.file, definition.format, header=definition.header, quotes=definition.quotes)
        refuse_texts(file)
        if file.read_once:
            raise InputError(f"{file.path}: the rows of a task are read several times; give a file")
        return read_rows(file) if definition.half is None else _half(read_rows(file), definition.half)
    if source.data_dir is not None:
        return read_rows(str(_file(task, split, source.data_dir)))
    return _hub_rows(task, split, source)


def files_of(task: Task) -> list[str]:
    """The files on this machine that the task's definition names."""
    return list(dict.fromkeys(split.file for split in task.splits.values() if split.file is not None))


def _half(rows: Iterator[Row], half: int) -> Iterator[Row]:
    """One row of every two, drawn with a fixed seed, or the other row; more rows at the end change nothing."""
    draw, first = random.Random(0), False
    for number, row in enumerate(rows):
        if number % 2 == 0:
            first = draw.random() < 0.5
        if (number % 2 == 0) == (first == (half == 1)):
            yield row


def _file(task: Task, split: str, data_dir: Path) -> Path:
    folder = data_dir / task.folder
    for suffix in SUFFIXES:
        if (path := folder / f"{split}{suffix}").is_file():
            return path
    raise InputError.of(
        "data_dir",
        data_dir,
        f"task {task.name} needs {folder / split}.jsonl (rows in the hub's columns), which is missing; "
        f"add it, or omit {option('data_dir')} to use {_origin(task, split)}",
    )


def _hub_rows(task: Task, split: str, source: Source) -> Iterator[Row]:
    definition = task.splits.get(split, Split())
    if task.hub is None and definition.url is None:
        raise InputError(f"task {task.name}: its file names no hub data set; give {option('data_dir')}")
    origin = _origin(task, split)
    try:
        import datasets  # noqa: F401  imported before its settings are changed

        # A hub that does not answer is not asked again: the files in the cache are used.
        unanswered = definition.url is None and not forbidden_by(source.offline) and not answers()
        with quiet_libraries(source.offline or unanswered):
            rows = _loaded(task, split, definition)
    except Exception as error:  # the library raises many types, and the reason is in their message
        hint = f"give {option('data_dir')} DIR with DIR/{task.folder}/{split}.jsonl"
        if is_unreachable(error):
            raise unreachable(Problem(f"task {task.name}: {origin}"), source.offline, hint) from error
        reason = " ".join(str(error).split())[:200]
        raise DeepThinkError(
            f"task {task.name}: cannot load {origin}: {type(error).__name__}: {reason}; {hint}"
        ) from error
    for number, fields in enumerate(rows, start=1):
        yield Row(fields, f"{origin}:{number}")


def _loaded(task: Task, split: str, definition: Split) -> Any:
    from datasets import load_dataset

    if definition.url is not None and definition.pattern is not None:
        texts = load_dataset("text", data_files={split: definition.url}, split=split, sample_by="document")
        return matches(definition.pattern, "\n".join(texts["text"]))
    if definition.url is not None:
        return load_dataset("json", data_files={split: definition.url}, split=split, field=definition.field)
    assert task.hub is not None
    config = definition.config or task.hub.config
    return load_dataset(task.hub.path, config, split=definition.split or split, revision=task.hub.revision)


def matches(pattern: str, text: str) -> list[dict[str, str]]:
    """The matches of a pattern in a text as rows, with its named groups as columns."""
    return [
        {name: (value or "").strip() for name, value in match.groupdict().items()}
        for match in all_matches(pattern, text)
    ]


def _origin(task: Task, split: str) -> str:
    origin = task.splits.get(split, Split())
    if origin.url is not None:
        return origin.url
    if task.hub is None:
        return "no hub data set"
    config = origin.config or task.hub.config
    return f"{task.hub.path}{f' ({config})' if config else ''}, split {origin.split or split}"
