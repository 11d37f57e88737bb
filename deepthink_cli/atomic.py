"""Files that are either whole or not there: written beside their target, then moved over it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from deepthink_cli.errors import DeepThinkError, InputError

_MARK = ".deepthink-"  # temporary folders are named .NAME.deepthink-PID
_LONGEST = 200  # bytes of a file name; 255, the most on common disks, less what the temporary folder adds


def check_output(path: str | Path, option: str = "-o") -> Path:
    """The file that `path` names, links followed; raises InputError where nothing can be written there."""
    target = Path(os.path.realpath(path))
    if len(os.fsencode(target.name)) > _LONGEST:
        raise InputError(f"{option} {path}: the file name is too long; use at most {_LONGEST} bytes")
    if not os.path.isdir(target.parent):
        raise InputError(f"{option} {path}: there is no directory {target.parent}; create it first")
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(f"{option} {path}: not a regular file; name a new file or an existing one")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{option} {path}: the directory {target.parent} is not writable")
    return target


@contextmanager
def replacing(path: str | Path, option: str = "-o") -> Iterator[Path]:
    """Give a temporary path; when the block ends well its file takes the target's place, else it goes.

    The target keeps its mode; a new one gets 0666 less the umask. What was there before stays until
    the new file is whole and on disk. Raises DeepThinkError where the disk refuses.
    """
    target = check_output(path, option)
    folder = target.parent / f".{target.name}{_MARK}{os.getpid()}"
    try:
        _sweep(target)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        temporary = folder / target.name
        yield temporary
        os.chmod(temporary, _mode(target))
        _sync(temporary)
        os.replace(temporary, target)
        _sync(target.parent)
    except OSError as error:
        raise DeepThinkError(f"{option} {path}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def writing(path: str | Path, option: str = "-o") -> Iterator[TextIO]:
    """A UTF-8 text file that takes the target's place when the block ends well (see `replacing`)."""
    with replacing(path, option) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        yield file


def _mode(target: Path) -> int:
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(target: Path) -> None:
    """Remove what dead processes left beside this target."""
    prefix = f".{target.name}{_MARK}"
    for folder in target.parent.iterdir():
        if folder.name.startswith(prefix) and not _alive(folder.name.removeprefix(prefix)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: str) -> bool:
    if not pid.isdecimal():
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
