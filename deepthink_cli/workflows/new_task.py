"""Write a task file from a file of rows: the workflow of `deepthink tasks new`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from deepthink_cli.data.formats.texts import refuse_texts
from deepthink_cli.data.rows import RowSource, read_rows
from deepthink_cli.errors import InputError
from deepthink_cli.io.atomic import check_output, writing
from deepthink_cli.tasks.catalogue import built_in, groups
from deepthink_cli.tasks.files import validated
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.guess import Guess, guessed
from deepthink_cli.tasks.starter import starter

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class NewTask:
    """A task file that was written, and what was guessed for it."""

    path: Path
    task: Task
    guess: Guess


def new_task(
    name: str, source: RowSource, output: Path | None = None, label: str | None = None, replace: bool = False
) -> NewTask:
    """Guess a task from the rows of a file, write its task file and load it again.

    The file is `NAME.yaml` unless `output` names another one; it is overwritten only with `replace`. Raises InputError
    for a name that is taken or not valid, and for rows from which no task can be guessed.
    """
    name = name.removesuffix(Path(name).suffix) if name.endswith(SUFFIXES) else name
    if name in built_in() or name in groups():
        raise InputError(f"{name}: is a built-in task; choose another name")
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(f"{name!r}: is not a valid name of a task; use letters, digits, - _ and .")
    path = output or Path(f"{name}.yaml")
    if path.suffix not in SUFFIXES:
        raise InputError(f"-o {path}: a task file ends with .yaml; use {path}.yaml")
    check_output(path)
    if path.exists() and not replace:
        raise InputError(f"-o {path}: exists; give --force to replace it, or another name with -o")
    if source.read_once:
        raise InputError(f"--from {source.path}: the task file names the file of its rows; give a file")
    refuse_texts(source)
    guess = guessed(read_rows(source), source.name, label)
    text = starter(name, guess, os.path.relpath(source.path, path.parent), source.format)
    with writing(path) as out:
        out.write(text)
    (task,) = validated(path)
    return NewTask(path, task, guess)
