"""The folder of a run: rows are appended one by one; a resumed run neither loses nor duplicates rows."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.experiments.results import FILE, Result, read_results
from deepthink_cli.experiments.samples import FOLDER as SAMPLES
from deepthink_cli.experiments.samples import without_samples
from deepthink_cli.io.atomic import append, cut, refusals, sweep, whole_lines

LOCK = ".lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class RunFolder:
    """The rows of a run, open for appending; created by `open_run_folder`.

    `done` are the keys of rows that need not be made. With `samples`, a row whose samples are not whole is in
    `unsampled` instead.
    """

    def __init__(self, folder: Path, samples: bool = False) -> None:
        self.folder = folder
        self.found = read_results(folder)
        self.rows = len(self.found)
        self.unsampled = without_samples(folder, self.found) if samples else {}
        self.done = {row.key for row in self.found} - self.unsampled.keys()

    def append(self, row: Result) -> None:
        """Write one row and sync it to disk; raises DeepThinkError if that fails, with earlier rows intact."""
        with _refusals(self.folder):
            append(self.folder / FILE, [row.line()])
        self.rows += 1
        self.done.add(row.key)

    def sampled(self, row: Result) -> None:
        """Note that the samples of a row in the folder have been made again."""
        del self.unsampled[row.key]
        self.done.add(row.key)


@contextmanager
def open_run_folder(folder: Path, samples: bool = False) -> Iterator[RunFolder]:
    """Open a run's folder with an exclusive lock; the folder is created if it does not exist.

    An incomplete last row of a killed run is removed. Raises InputError if another process writes the
    same run, if the folder contains other files, and for rows that are not a run's; DeepThinkError if
    writing fails.
    """
    check_folder(folder)
    with _refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).touch()
        (folder / LOCK).touch()
        lock = _acquired(folder)
    with lock:
        run_folder = RunFolder(folder, samples)  # raises for a file that is not a run's, before truncating it
        with _refusals(folder):
            cut(folder / FILE, whole_lines(folder / FILE))
            sweep(folder)
            if (folder / SAMPLES).is_dir():
                sweep(folder / SAMPLES)
        yield run_folder


def found_in(folder: Path) -> list[Result]:
    """The rows of a run in a folder, if it contains one, without locking; raises as `open_run_folder` does."""
    with _refusals(folder):
        return read_results(folder) if (folder / FILE).is_file() else []


def check_folder(folder: Path) -> None:
    """Raise InputError if a run cannot be written to this folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError.of("output", folder, "is a file; name a folder")
    if folder.is_dir() and not (folder / FILE).exists() and any(entry.name != LOCK for entry in folder.iterdir()):
        raise InputError.of("output", folder, "holds other files and no run; name a new folder")
    parent = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    if not os.access(parent, os.W_OK):
        raise InputError.of("output", folder, f"{parent} is not writable; name another folder")


def _refusals(folder: Path) -> AbstractContextManager[None]:
    return refusals(Problem.of("output", folder), "the same command continues the run")


def _acquired(folder: Path) -> AbstractContextManager[object]:
    """Hold the run's lock, which the kernel releases when the process ends; the lock file contains the process id."""
    holder = ""
    with suppress(OSError, UnicodeDecodeError):  # on Windows, other processes cannot read a locked file
        holder = (folder / LOCK).read_text(encoding="utf-8")
    lock = FileLock(folder / LOCK, blocking=False, fallback_to_soft=False, on_acquired=_write_process_number)
    try:
        return lock.acquire()
    except Timeout as error:
        raise InputError.of(
            "output",
            folder,
            f"another deepthink run (process {holder or 'unknown'}) writes there; wait for it, or name another folder",
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise DeepThinkError.of(
            "output",
            folder,
            f"the file system has no locks ({error.strerror}), which a run needs; name a folder on another",
        ) from error


def _write_process_number(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
