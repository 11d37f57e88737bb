"""Write the rows of a run, wherever they are made: each key once, by the one process that holds the folder's lock."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Note, Tell, once, silent
from deepthink_cli.experiments.executors.base import JobEvent, RowMade
from deepthink_cli.experiments.folder import RunFolder
from deepthink_cli.experiments.progress import InputsScored, JobInfo, JobsStarted, RowWritten
from deepthink_cli.experiments.results import Result
from deepthink_cli.experiments.samples import write_samples, write_texts

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Prediction


@dataclass(frozen=True)
class RunSummary:
    """The number of rows of the run, the rows written by this call, and the inputs scored for them."""

    out: str
    rows: int
    written: int
    inputs: int
    seconds: float


class Collector:
    """Writes rows into a folder, with the scores of every input if `samples`, and tells of the progress."""

    def __init__(self, folder: RunFolder, samples: bool, tell: Tell = silent) -> None:
        self.folder, self.samples, self.tell, self.tell_once = folder, samples, tell, once(tell)
        self.inputs = self.written = 0
        self.lines = {row.key: _digest(row) for row in folder.found}

    def happened(self, event: JobEvent) -> None:
        """Note an event; raises DeepThinkError if writing fails, and for a row that exists with other contents."""
        if isinstance(event, RowMade):
            self._write(event.job, event.row, event.predictions)
            return
        self.tell(event)
        if isinstance(event, InputsScored):
            self.inputs += event.inputs
        elif isinstance(event, JobsStarted):
            for text in dict.fromkeys(job.fewer for job in event.jobs):
                if text is not None:
                    self.tell_once(Note(text))

    def _write(self, job: JobInfo, row: Result, predictions: Sequence[Prediction]) -> None:
        folder, line = self.folder, _digest(row)
        if row.key in folder.unsampled:
            if folder.unsampled[row.key].correct != row.correct:
                raise DeepThinkError(
                    f"{folder.folder}: {job.label} (key {row.key}) has other labels now than in its row, so "
                    "its samples are not written; use the versions and the device of that run, or a new folder"
                )
            self._write_samples(row, predictions)
            folder.sampled(row)  # the row itself stays as it is
            self.tell(RowWritten(job, row))
            return
        if (known := self.lines.get(row.key)) is not None:
            if known != line:
                raise DeepThinkError(
                    f"{folder.folder}: two workers made different rows of {job.label} (key {row.key}); the first is "
                    "kept; check that all machines have the same versions and devices"
                )
            return
        if self.samples:
            self._write_samples(row, predictions)
        folder.append(row)
        self.lines[row.key] = line
        self.written += 1
        self.tell(RowWritten(job, row))

    def _write_samples(self, row: Result, predictions: Sequence[Prediction]) -> None:
        write_samples(self.folder.folder, row, predictions)
        write_texts(self.folder.folder, str(row.setting.rows_sha256), predictions)


def _digest(row: Result) -> bytes:
    return hashlib.blake2b(row.line().encode(), digest_size=16).digest()
