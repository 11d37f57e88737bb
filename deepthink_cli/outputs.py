"""Check the outputs of a command, which must not overwrite its inputs or write into a run's folder."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from deepthink_cli.artifact.format import check_replaceable, is_memory
from deepthink_cli.data.source import STDIN, RowSource
from deepthink_cli.errors import InputError, Problem
from deepthink_cli.experiments.folder import LOCK, check_folder
from deepthink_cli.experiments.results import FILE
from deepthink_cli.io.atomic import check_output

_ROW = 2**20  # bytes; longer than the first row of a run

Paths = Iterable[str | Path]


def check_apart(
    path: str | Path, read: Paths, field: str = "output", runs: Collection[Path] = (), figures: Collection[str] = ()
) -> None:
    """Raise InputError unless `path` can be written without overwriting an input of the command, under any name.

    `read` are files, folders whose files are read, and `-` for standard input. Into a run's folder, such as those in
    `runs`, only files whose suffix is in `figures` may be written. Also raises as `check_output` does.
    """
    target = check_output(path, field)
    for source in read if target.exists() else ():
        if os.path.isdir(source):
            is_below = _number(source) in map(_number, target.parents)
            is_linked = _number(target) in map(_number, Path(source).iterdir())
            if (is_below or is_linked) and not is_memory(target):
                raise InputError.of(field, path, f"a file of {source}, which this command reads; name a new file")
        elif _number(source) == _number(target):
            reason = f"the same file as {RowSource(str(source)).name}, which this command reads; name another file"
            raise InputError.of(field, path, reason)
    if target.suffix.lower() not in figures:
        _refuse_runs(target.parents, runs, Problem.of(field, path), "a file elsewhere")


def check_memory_apart(path: Path, read: Paths) -> None:
    """Raise InputError as `check_apart`, and for an existing file that a memory must not replace: it is none."""
    check_apart(path, read)
    check_replaceable(path)


def check_run_apart(folder: Path, read: Paths) -> None:
    """Raise InputError unless a run can be written to `folder` without overwriting its inputs.

    `read` is as in `check_apart`. Also raises as `check_folder` does.
    """
    check_folder(folder)
    written = {_number(path) for path in (folder, *folder.glob("*"), *folder.glob("*/*"))} - {None}
    for source in read:
        around = (source, *Path(os.path.realpath(source)).parents)
        if any(_number(path) in written for path in around):
            reason = f"holds {RowSource(str(source)).name}, which this command reads; name a new folder"
            raise InputError.of("output", folder, reason)


def check_folder_apart(path: Path, runs: Collection[Path]) -> None:
    """Raise InputError unless files can be added to a folder, which need not exist, outside of any run."""
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not target.is_dir():
        raise InputError.of("output", path, "a file; name a folder")
    around = [folder for folder in (target, *target.parents) if folder.is_dir()]
    _refuse_runs(around, runs, Problem.of("output", path), "another folder")
    if not os.access(around[0], os.W_OK | os.X_OK):
        raise InputError.of("output", path, f"the directory {around[0]} is not writable")


def _refuse_runs(around: Iterable[Path], runs: Collection[Path], named: Problem, way: str) -> None:
    """Raise InputError if one of the folders around an output holds a run."""
    known = {_number(run) for run in runs}
    for folder in around:
        if _is_run(folder) or _number(folder) in known:
            raise InputError(named.because(f"{folder} holds a run, and only deepthink run writes there; name {way}"))


def _number(path: str | Path) -> tuple[int, int] | None:
    """The device and inode of a file, which are the same for all its links; None if there is no file."""
    with suppress(OSError, ValueError):  # standard input may be closed, or have no file
        status = os.fstat(sys.stdin.fileno()) if str(path) == STDIN else os.stat(path)
        return (status.st_dev, status.st_ino) if str(path) != STDIN or stat.S_ISREG(status.st_mode) else None
    return None


def _is_run(folder: Path) -> bool:
    """Whether a folder contains a run, recognised by its lock file or by its rows."""
    if not (folder / FILE).is_file():
        return False
    with open(folder / FILE, "rb") as rows:
        first = rows.readline(_ROW)
    return (folder / LOCK).is_file() or (b'"key":' in first and b'"setting":' in first)
