"""The folder of a run: rows are appended one by one; a resumed run neither loses nor duplicates rows."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.experiments.results import FILE, Result, read_results
from deepthink_cli.experiments.samples import FOLDER as SAMPLES
from deepthink_cli.experiments.samples import without_samples, write_samples, write_texts
from deepthink_cli.io.atomic import append, cut, refusals, sweep, whole_lines

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Prediction

LOCK = ".lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class RunFolder:
    """The rows of a run, open for appending; created by `open_run_folder`.

    `done` are the keys of rows that need not be made; `written` counts those that were appended. With `samples`, rows
    come with the scores of every input, and a row in the folder whose samples are not whole is in `unsampled` instead.
    """

    def __init__(self, folder: Path, samples: bool = False) -> None:
        self.folder, self.samples = folder, samples
        self.found = read_results(folder)
        self.unsampled = without_samples(folder, self.found) if samples else {}
        self.lines = {row.key: _digest(row) for row in self.found}
        self.done = self.lines.keys() - self.unsampled.keys()
        self.written = 0

    @property
    def rows(self) -> int:
        """The number of rows in the folder."""
        return len(self.found) + self.written

    def write(self, row: Result, predictions: Sequence[Prediction], name: str) -> bool:
        """Write a row, or only its samples if it is there; False if there is nothing to write.

        Raises DeepThinkError if that fails, and for a row of job `name` that exists with other contents.
        """
        if row.key in self.unsampled:
            if self.unsampled[row.key].correct != row.correct:
                raise DeepThinkError(
                    f"{self.folder}: {name} (key {row.key}) has other labels now than in its row, so "
                    "its samples are not written; use the versions and the device of that run, or a new folder"
                )
            self._write_samples(row, predictions)
            del self.unsampled[row.key]
            self.done.add(row.key)
            return True
        if (known := self.lines.get(row.key)) is not None:
            if known != _digest(row):
                raise DeepThinkError(
                    f"{self.folder}: two workers made different rows of {name} (key {row.key}); the first is "
                    "kept; check that all machines have the same versions and devices"
                )
            return False
        if self.samples:
            self._write_samples(row, predictions)
        self.append(row)
        return True

    def append(self, row: Result) -> None:
        """Write one row and sync it to disk; raises DeepThinkError if that fails, with earlier rows intact."""
        with _refusals(self.folder):
            append(self.folder / FILE, [row.line()])
        self.lines[row.key] = _digest(row)
        self.done.add(row.key)
        self.written += 1

    def _write_samples(self, row: Result, predictions: Sequence[Prediction]) -> None:
        write_samples(self.folder, row, predictions)
        write_texts(self.folder, str(row.setting.rows_sha256), predictions)


def _digest(row: Result) -> bytes:
    return hashlib.blake2b(row.line().encode(), digest_size=16).digest()


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
