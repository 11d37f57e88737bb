"""Write the rows of a run, wherever they are made: each key once, by the one process that holds the folder's lock."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.experiments.executors.messages import Began, Ended, JobEvent, JobInfo, Step
from deepthink_cli.experiments.folder import RunFolder
from deepthink_cli.experiments.progress import InputsScored, JobsDone, JobsStarted, RowWritten
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
        self.folder, self.samples, self.tell = folder, samples, tell
        self.told: set[str] = set()
        self.inputs = self.written = 0
        self.lines = {row.key: _digest(row) for row in folder.found}
        self.running: dict[Hashable, Sequence[JobInfo]] = {}
        self.since: dict[Hashable, Counter[JobInfo]] = {}

    def happened(self, unit: Hashable, event: JobEvent) -> None:
        """Note an event of a unit, whose jobs have the numbers of its event `Began`.

        Raises DeepThinkError if writing fails, and for a row that exists already with other contents.
        """
        match event:
            case Began(jobs):
                self.running[unit], self.since[unit] = jobs, Counter()
                self.tell(JobsStarted(jobs))
                for text in dict.fromkeys(job.fewer for job in jobs):
                    if text is not None and text not in self.told:
                        self.told.add(text)
                        self.tell(Note(text))
            case Step(number, inputs, None):
                job = self.running[unit][number]
                self.inputs += inputs
                self.since[unit][job] += inputs
                self.tell(InputsScored(job, inputs))
            case Step(number, _, Result() as row, predictions):
                job = self.running[unit][number]
                self._write(job, row, predictions)
                self.since[unit].pop(job, None)
            case Ended():
                self.tell(JobsDone(self.running.pop(unit)))

    def interrupted(self, unit: Hashable) -> None:
        """Take back the progress since the last row of each job of a unit, whose worker has died."""
        self.running.pop(unit, None)
        for job, inputs in self.since.pop(unit, Counter[JobInfo]()).items():
            self.tell(InputsScored(job, -inputs))

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
