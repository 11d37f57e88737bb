"""Writing files that no interruption damages: atomically, or by appending whole rows.

A file is written to a temporary folder next to its target, then moved over it. Interrupted work continues from files
that are only appended to: a run's rows, and the labels of `predict --resume`. A row is a line of JSON that is never
changed, and is synced to disk as it is written. A row of a run has a key that identifies its result. A row of a
labelling has the number of its input; the first line of its file identifies the labelling. The process that continues
the work holds a lock, cuts off an unfinished last line, and does the work that has no row yet.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from filelock import Timeout, lock_descriptor

from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.io.temporary import temporary_folder

_MARK = ".deepthink-"  # temporary folders are named .NAME.deepthink-RANDOM
_LONGEST = 200  # the most bytes of a file name: 255 on common file systems, less the rest of a temporary folder's name


def check_output(path: str | Path, field: str = "output") -> Path:
    """The file that `path` names, with links resolved; raises InputError if it cannot be written."""
    target = Path(os.path.realpath(path))
    if len(os.fsencode(target.name)) > _LONGEST:
        raise InputError.of(field, path, f"the file name is too long; use at most {_LONGEST} bytes")
    if not os.path.isdir(target.parent):
        raise InputError.of(field, path, f"there is no directory {target.parent}; create it first")
    if os.path.lexists(target) and not os.path.isfile(target):
        raise InputError.of(field, path, "not a regular file; name a new file or an existing one")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError.of(field, path, f"the directory {target.parent} is not writable")
    return target


@contextmanager
def replacing(path: str | Path, field: str = "output") -> Iterator[Path]:
    """Yield a temporary path, whose file replaces the target if the block succeeds and is removed if it fails.

    An existing target keeps its mode; a new one gets 0666 less the umask. The old file is replaced only after
    the new one is complete and synced to disk; other hard links keep the old content. Raises DeepThinkError if
    the write fails; the target is then unchanged.
    """
    target = check_output(path, field)
    with _in_place_of(target, Problem.of(field, path)) as folder:
        temporary = folder / target.name
        yield temporary
        _sync(temporary)
        os.chmod(temporary, _mode(target, folder))
        os.replace(temporary, target)


@contextmanager
def making_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder, which becomes the target if the block succeeds and is removed if it fails.

    Raises InputError as `check_new_folder`, and DeepThinkError if the write fails.
    """
    target = check_new_folder(path)
    with _in_place_of(target, Problem.of("output", path)) as folder:
        temporary = folder / target.name
        temporary.mkdir()
        yield temporary
        for file in (*temporary.iterdir(), temporary):
            _sync(file)
        os.replace(temporary, target)


@contextmanager
def _in_place_of(target: Path, named: Problem) -> Iterator[Path]:
    """A temporary folder beside the target, locked while it is used; the target is then synced, the folder removed.

    Raises DeepThinkError if a write fails.
    """
    with refusals(named), ExitStack() as held:
        with suppress(OSError):  # a directory can be writable and not readable
            sweep(target.parent, target.name)
        while True:
            folder = held.enter_context(temporary_folder(target.parent, f".{target.name}{_MARK}"))
            try:
                held.enter_context(_locked(folder))
            except (Timeout, FileNotFoundError):
                continue  # another process removed the folder before it was locked
            except OSError:
                pass  # no locks of folders here: then no other process can lock and remove it either
            break
        yield folder
        with suppress(OSError):  # not every file system supports it; the new file is in place anyway
            _sync(target.parent)


def check_new_folder(path: str | Path) -> Path:
    """The folder that `path` names, with links resolved; raises InputError if it holds files or cannot be written."""
    target = Path(os.path.realpath(path))
    if not target.is_dir():
        if os.path.lexists(target):
            raise InputError.of("output", path, "a file, not a folder; name a new folder")
        return check_output(path)
    if held := sorted(os.listdir(target)):
        raise InputError.of("output", path, f"holds files, as {held[0]}; name a new folder")
    return target


@contextmanager
def writing(path: str | Path, field: str = "output") -> Iterator[TextIO]:
    """A UTF-8 text file that replaces the target if the block succeeds (see `replacing`)."""
    with replacing(path, field) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself, which the kernel releases whenever the process ends.

    A lock file in it would be removed with it, while another process opens or waits for it. A process id is not
    enough: ids are reused, and containers that share a disk have separate ids. Raises Timeout if another process holds
    the lock, FileNotFoundError if the folder is gone, and OSError if the system has no locks of folders or the path is
    not a folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not lock_descriptor(descriptor, blocking=False):
            raise Timeout(str(folder))
        if not os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            raise FileNotFoundError(folder)
        yield
    finally:
        os.close(descriptor)


def sweep(folder: Path, target: str | None = None) -> None:
    """Remove the temporary folders that killed processes have left in a folder: those of one target, or all."""
    left = re.compile(rf"\.{'.+' if target is None else re.escape(target)}{re.escape(_MARK)}[0-9a-f]{{16}}", re.DOTALL)
    for name in os.listdir(folder):
        if left.fullmatch(name):
            with suppress(OSError), _locked(folder / name):
                shutil.rmtree(folder / name, ignore_errors=True)


def _mode(target: Path, folder: Path) -> int:
    """The permissions of the target, or of a new file (os.umask is not used, since reading it sets it)."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    probe = folder / f"{target.name}.mode"
    probe.touch()
    return stat.S_IMODE(probe.stat().st_mode)


def _sync(path: Path) -> None:
    # Windows can sync only files opened for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_BLOCK = 65536  # bytes read at a time


def append(path: Path, lines: Iterable[str]) -> None:
    """Write lines at the end of a file, and sync them to disk."""
    with open(path, "ab") as file:
        file.writelines(line.encode() for line in lines)
        file.flush()
        os.fsync(file.fileno())


def cut(path: Path, end: int) -> None:
    """Remove all but the first `end` bytes of a file."""
    with open(path, "r+b") as file:
        if end < os.fstat(file.fileno()).st_size:
            file.truncate(end)
            os.fsync(file.fileno())


def whole_lines(path: Path) -> int:
    """The bytes of a file up to the end of its last whole line."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            place = file.read(end - start).rfind(b"\n")
            if place >= 0:
                return start + place + 1
            end = start
    return 0


@contextmanager
def refusals(named: Problem, hint: str = "") -> Iterator[None]:
    """Raise errors of the file system as a DeepThinkError that begins with `named` and ends with the `hint`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # without the text that libraries add
        raise DeepThinkError(named.because(f"cannot be written: {reason}{hint}")) from error
