"""The folder of a run: rows are appended one by one; a resumed run neither loses nor duplicates rows.

A shard of a run does its part of the jobs in a folder of its own, with nothing between them but the plan. A shard that
is done has a `shard.json` with the digest of the plan, by which a report tells whether the shards belong together.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from deepthink_cli.errors import DeepThinkError, InputError, Problem, option
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
        self.lines = {row.key: row.digest for row in self.found}
        self.done = self.lines.keys() - self.unsampled.keys()
        self.written = 0

    @property
    def rows(self) -> int:
        """The number of rows in the folder."""
        return len(self.found) + self.written

    def write(self, row: Result, predictions: Sequence[Prediction], name: str) -> bool:
        """Write a row and sync it to disk, or write only its samples if it is there; False if nothing was missing.

        Raises DeepThinkError if that fails, with earlier rows intact, and for a row of job `name` that exists with
        other contents.
        """
        known, unsampled = self.lines.get(row.key), self.unsampled.get(row.key)
        if unsampled is not None and unsampled.correct != row.correct:
            raise DeepThinkError(
                f"{self.folder}: {name} (key {row.key}) has other labels now than in its row, so "
                "its samples are not written; use the versions and the device of that run, or a new folder"
            )
        if unsampled is None and known not in (None, row.digest):
            raise DeepThinkError(
                f"{self.folder}: two workers made different rows of {name} (key {row.key}); the first is "
                "kept; check that all machines have the same versions and devices"
            )
        if unsampled is None and known is not None:
            return False
        if self.samples:
            write_samples(self.folder, row, predictions)
            write_texts(self.folder, str(row.setting.rows_sha256), predictions)
            self.unsampled.pop(row.key, None)
        if known is None:
            with _refusals(self.folder):
                append(self.folder / FILE, [row.line()])
            self.lines[row.key] = row.digest
            self.written += 1
        self.done.add(row.key)
        return True


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
    return refusals(Problem.of("output", folder), "; the same command continues the run")


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
        told = f"the file system has no locks ({error.strerror}), which a run needs; name a folder on another"
        raise DeepThinkError.of("output", folder, told) from error


def _write_process_number(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())


MANIFEST = "shard.json"
_NAME = re.compile(r"shard-(\d+)-of-(\d+)")
_OPTION = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1, of `of` parts."""

    number: int
    of: int

    @classmethod
    def parsed(cls, text: str) -> Shard:
        """The shard that `I/N` names; raises InputError for another text."""
        match = _OPTION.fullmatch(text.strip())
        shard = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.of:
            raise InputError.of("shard", text, "give I/N, part I of N from 1/N to N/N, as in 1/4")
        return shard

    def folder(self, out: Path) -> Path:
        """`out/shard-I-of-N`; raises InputError if `out` holds a run, or shards of another number."""
        if (out / FILE).exists():
            raise InputError.of("output", out, "holds a run that is not divided into shards; name a new folder")
        others = {_parts(path)[1] for path in _shard_folders(out)} - {self.of}
        if others:
            raise InputError.of(
                "output",
                out,
                f"holds shards of {others.pop()}; use {option('shard')} I/N with that N, or name a new folder",
            )
        return out / f"shard-{self.number}-of-{self.of}"


def with_shards(runs: Iterable[Path]) -> list[Path]:
    """The folders of runs, with the folders of its shards in place of one that is divided."""
    folders = list[Path]()
    for run in runs:
        folders += [run] if (run / FILE).exists() else _shard_folders(run) or [run]
    return folders


def shard_warnings(runs: Iterable[Path]) -> Iterator[str]:
    """A line for each of the runs whose shards are incomplete, and for each whose shards were planned differently."""
    for run in runs:
        folders = [] if (run / FILE).exists() else _shard_folders(run)
        plans = {folder: _plan(folder / MANIFEST) for folder in folders if (folder / MANIFEST).is_file()}
        of = max((_parts(folder)[1] for folder in folders), default=0)
        if missing := sorted(set(range(1, of + 1)) - {_parts(folder)[0] for folder in plans}):
            yield f"{run}: shard {', '.join(map(str, missing))} of {of} is not done: rows are missing"
        if len(set(plans.values())) > 1:
            yield (
                f"{run}: its shards were planned differently (other options, data or devices), so rows may be missing; "
                "run all shards again with one command"
            )


def _shard_folders(run: Path) -> list[Path]:
    """The folders of a run's shards, in the order of their numbers."""
    folders = [path for path in run.iterdir() if _NAME.fullmatch(path.name)] if run.is_dir() else []
    return sorted(folders, key=_parts)


def _parts(folder: Path) -> tuple[int, ...]:
    """The number of a shard, and the number of all shards."""
    return tuple(map(int, _NAME.findall(folder.name)[0]))


def _plan(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["plan"])
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: is not what a shard writes; remove it and run the shard again") from error
