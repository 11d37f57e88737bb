"""Files that are either whole or not there: written beside their target, then moved over it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

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
            except (BlockingIOError, FileNotFoundError):
                continue  # another process's sweep came between
            except OSError:
                pass  # a disk without locks: no sweep can take the folder either
            break
        yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the kernel frees however a process dies.

    A process number would not do: numbers are used again, and containers that share a disk have their own.
    Raises BlockingIOError where another process holds the lock, FileNotFoundError where the folder has gone,
    and OSError where the disk has no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            raise FileNotFoundError(folder)
        yield
    finally:
        os.close(descriptor)


def _sweep(target: Path) -> None:
    """Remove what dead processes left beside this target: the folders that nobody holds."""
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
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
