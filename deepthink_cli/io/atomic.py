"""Atomic writes: a file is written beside its target, then moved over it."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

from deepthink_cli.errors import DeepThinkError, InputError

_MARK = ".deepthink-"  # temporary folders are named .NAME.deepthink-RANDOM
_LONGEST = 200  # bytes of a file name; 255, the most on common disks, less what the temporary folder adds


def check_output(path: str | Path, option: str = "-o") -> Path:
    """The file that `path` names, links followed; raises InputError where nothing can be written there."""
    target = Path(os.path.realpath(path))
    if len(os.fsencode(target.name)) > _LONGEST:
        raise InputError(f"{option} {path}: the file name is too long; use at most {_LONGEST} bytes")
    if not os.path.isdir(target.parent):
        raise InputError(f"{option} {path}: there is no directory {target.parent}; create it first")
    if os.path.lexists(target) and not os.path.isfile(target):
        raise InputError(f"{option} {path}: not a regular file; name a new file or an existing one")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{option} {path}: the directory {target.parent} is not writable")
    return target


@contextmanager
def replacing(path: str | Path, option: str = "-o") -> Iterator[Path]:
    """Give a temporary path; when the block ends well its file takes the target's place, else it goes.

    The target keeps its mode; a new one gets 0666 less the umask. What was there before stays until
    the new file is whole and on disk; other hard links to it keep it. Raises DeepThinkError where the disk
    refuses: the target is then as it was.
    """
    target = check_output(path, option)
    try:
        with suppress(OSError):  # one may write to a directory and not read it
            _sweep(target)
        with _folder_beside(target) as folder:
            temporary = folder / target.name
            yield temporary
            _sync(temporary)
            os.chmod(temporary, _mode(target, folder))
            os.replace(temporary, target)
            with suppress(OSError):  # not every disk can; the new file is in its place all the same
                _sync(target.parent)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # libraries add words of their own
        raise DeepThinkError(f"{option} {path}: cannot be written: {reason}") from error


@contextmanager
def writing(path: str | Path, option: str = "-o") -> Iterator[TextIO]:
    """A UTF-8 text file that takes the target's place when the block ends well (see `replacing`)."""
    with replacing(path, option) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def _folder_beside(target: Path) -> Iterator[Path]:
    """A new folder beside the target, locked for as long as it is used, then removed."""
    with ExitStack() as held:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=f".{target.name}{_MARK}", dir=target.parent))
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                held.enter_context(_locked(folder))
            except (Timeout, FileNotFoundError):
                continue  # another process swept the folder before it was locked
            except OSError:
                pass  # a disk without locks: no sweep can lock the folder either
            break
        yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the kernel frees however a process ends.

    A process number would not do: numbers are reused, and containers that share a disk have their own.
    Raises Timeout where another process holds the lock, FileNotFoundError where the folder is gone, and OSError
    where the disk has no locks or the path is not a folder.
    """
    before = os.lstat(folder)
    if not stat.S_ISDIR(before.st_mode):
        raise NotADirectoryError(folder)
    # The name is longer than the target's, so the two differ.
    with FileLock(folder / f"{folder.name}.lock", blocking=False, fallback_to_soft=False):
        if not os.path.samestat(before, os.lstat(folder)):  # the library makes a missing folder again
            raise FileNotFoundError(folder)
        yield


def _sweep(target: Path) -> None:
    """Remove the temporary folders beside this target that no process has locked."""
    for name in os.listdir(target.parent):
        if name.startswith(f".{target.name}{_MARK}"):
            folder = target.parent / name
            with suppress(OSError), _locked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _mode(target: Path, folder: Path) -> int:
    """The target's permissions; where there is none, those of a new file (the umask is not asked: that sets it)."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    probe = folder / f"{target.name}.mode"
    probe.touch()
    return stat.S_IMODE(probe.stat().st_mode)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows flushes only what is writable
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
