"""Label a folder of Parquet files with workers: one file at a time by each, which holds model and memory.

Workers read and write the files themselves. A file of labels appears when it is complete; files that are complete are
kept, so the same command continues a labelling that was interrupted.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from deepthink_cli.artifact.opening import OpenedMemory, find_its_model, model_options, named_by, open_memory
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.calibration.stored import in_use
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.opening import tell_of_download
from deepthink_cli.errors import DeepThinkError, InputError, Problems
from deepthink_cli.events import Note, Progress, Tell, Warn, silent
from deepthink_cli.experiments.executors.base import Executor, other_version
from deepthink_cli.experiments.executors.messages import Done, Labelled, Opened, Unit
from deepthink_cli.experiments.executors.scheduler import Scheduler
from deepthink_cli.io.atomic import writing
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import ScoreName
from deepthink_cli.prediction.files import write_labels
from deepthink_cli.prediction.labeller import RowLabeller
from deepthink_cli.prediction.options import ErrorOptions, LabelOptions
from deepthink_cli.prediction.predict import predict_file
from deepthink_cli.prediction.rows import output_rows
from deepthink_cli.scoring.inputs import check_rows

IDENTITY = "labels.json"  # what the labels of a folder were made with
SUFFIX = ".parquet"


@dataclass(frozen=True)
class FolderLabels:
    """What to label, with what; paths are absolute, and are the same on every machine of the cluster."""

    memory: str
    inputs: str
    output: str
    iteration: str = "last"
    options: ModelOptions | None = None
    calibrate: tuple[str, ...] = ()
    score: ScoreName = "sum"
    reread: int = 1
    nearest: int | None = None
    labels: LabelOptions = field(default_factory=LabelOptions.checked)
    errors: ErrorOptions = field(default_factory=ErrorOptions.checked)

    @property
    def name(self) -> str:
        """The folder of the inputs, for messages."""
        return self.inputs

    @property
    def files(self) -> list[Path]:
        """The files of the folder, by name; raises InputError if there are none."""
        files = sorted(Path(self.inputs).glob(f"*{SUFFIX}"))
        if not files:
            raise InputError(f"{self.inputs}: no {SUFFIX} files in it; give a folder of them, or omit the workers")
        return files

    def opened(self) -> OpenedMemory:
        """The memory, with how its queries are asked."""
        return open_memory(self.memory, self.iteration).asked_again(self.reread).attending_to(self.nearest)

    def identity(self) -> dict[str, Any]:
        """What all labels of the folder depend on, but for their rows."""
        values = {**asdict(self), "options": None, "labels": self.labels.model_dump(mode="json")}
        values |= {"errors": None, "skip": self.errors.skip}
        if self.reread == 1:
            del values["reread"]
        if self.nearest is None:
            del values["nearest"]
        values |= {} if self.errors.truncate is None else {"truncate": self.errors.truncate}
        if self.options is not None:
            values["options"] = self.options.recorded()
        memory = open_memory(self.memory, self.iteration)
        if "," in self.iteration:  # the same iterations in any order
            values["iteration"] = ",".join(map(str, memory.iterations))
        del values["output"], values["memory"], values["errors"]
        return {"memory": memory.sha256, **json.loads(json.dumps(values))}


@dataclass(frozen=True)
class FolderCounts:
    """Files and rows that were labelled by this call, files that were there already, and rows skipped as bad."""

    files: int
    kept: int
    rows: int
    errors: int


@dataclass(frozen=True)
class FileUnit:
    """A file of a folder to label."""

    subject: FolderLabels
    file: str

    @property
    def digest(self) -> str:
        """The name of the file, which is its own."""
        return self.file

    @property
    def label(self) -> str:
        """The path of the file."""
        return str(Path(self.subject.inputs) / self.file)


class Labeller:
    """What a worker holds: the model and the memory, loaded once, which label file after file."""

    def __init__(self, job: FolderLabels) -> None:
        self.job, self.memory = job, job.opened()
        names = in_use(job.calibrate, [self.memory], job.score)
        spec = find_its_model(self.memory, job.options, silent)
        self.loaded = RowLabeller(self.memory, (), spec, names, job.score, job.errors.skip)
        self.engine = self.loaded.engine

    def do(self, unit: Unit, samples: bool) -> Iterator[Labelled]:
        """Label a file; raises InputError with the first problem, which another worker would meet, too."""
        assert isinstance(unit, FileUnit)
        try:
            yield self._labelled(unit.file)
        except DeepThinkError as error:
            raise InputError(_shortened(error.messages)) from error
        except OSError as error:
            raise InputError(f"{unit.label}: {error.strerror or error}") from error

    def _labelled(self, name: str) -> Labelled:
        job, problems = self.job, Problems()
        source = RowSource(str(Path(job.inputs) / name))
        checked = check_rows(self.memory.provenance.demonstrations, source, problems, skip=job.errors.skip)
        problems.raise_any()
        output = Path(job.output) / name
        names = in_use(job.calibrate, [self.memory], job.score)
        form = output_rows(self.memory, checked, True, names, job.score, job.labels, job.errors)
        label = partial(
            predict_file,
            self.memory,
            source,
            checked=checked,
            calibrate=form.calibrate,
            score=form.score,
            skip=form.skip,
            truncate=form.truncate,
            same_labels=form.by_label,
            loaded=self.loaded,
        )
        counts = write_labels(label, output, form, silent)
        return Labelled(counts.rows, counts.errors)


def label_folder(job: FolderLabels, workers: AbstractContextManager[Executor], tell: Tell) -> FolderCounts:
    """Label every file of the folder whose labels are missing, into a file of the same name in `job.output`.

    `workers` are entered if a file is missing. Raises InputError for a folder without files, for one with labels of
    other options, and for a calibration that is estimated from rows; one error with a line for each file that could not
    be labelled, after all others are done.
    """
    if from_rows(job.calibrate):
        raise InputError.of("calibrate", ",".join(job.calibrate), "needs all rows, which workers divide; omit it")
    files = job.files
    memory = job.opened()
    _claim(Path(job.output), job.identity())
    in_use(job.calibrate, [memory], job.score)  # raises for a stored correction that does not fit
    several = len(memory.iterations)
    missing = [path.name for path in files if not _is_done(path, Path(job.output) / path.name, several)]
    if len(missing) < len(files):
        tell(Note(f"{job.output}: {len(files) - len(missing)} of {len(files)} files are there already"))
    driver = Driver(job, missing, tell)
    if missing:
        tell_of_download(model_options(memory, job.options), tell, named_by(memory, job.options))
        with workers as executor:
            scheduler = Scheduler(executor, driver, {job: len(missing)})
            scheduler.run()
        scheduler.raise_failures()
    return FolderCounts(len(missing), len(files) - len(missing), driver.rows, driver.errors)


class Driver:
    """What the scheduler asks about the files of a folder; see `Client` there."""

    def __init__(self, job: FolderLabels, missing: Sequence[str], tell: Tell) -> None:
        self.job, self.names, self.tell = job, missing, tell
        self.done = self.rows = self.errors = 0

    def units(self, subject: FolderLabels, opened: Opened) -> deque[FileUnit]:
        """The files whose labels are missing."""
        return deque(FileUnit(subject, name) for name in self.names)

    def refusal(self, subject: FolderLabels, opened: Opened) -> str | None:
        """Why a worker is refused: another version of the package; the memory itself refuses another model."""
        return other_version(opened)

    def happened(self, unit: FileUnit, event: Done) -> None:
        """Count the rows of a file that was labelled."""
        assert isinstance(event, Labelled)
        self.done, self.rows, self.errors = self.done + 1, self.rows + event.rows, self.errors + event.errors
        self.tell(Progress("labelling files", self.done, len(self.names)))

    def missing(self, unit: FileUnit) -> FileUnit:
        """The file itself: it is labelled from its beginning."""
        return unit

    def warn(self, text: str) -> None:
        """Warn of a worker that died or was refused."""
        self.tell(Warn(text))


def _shortened(messages: Sequence[str]) -> str:
    """The first message about a file, with the number of the others."""
    return messages[0] + (f" (and {len(messages) - 1} more lines)" if len(messages) > 1 else "")


def _claim(output: Path, identity: dict[str, Any]) -> None:
    """Make the folder of labels, or check that its labels were made with the same memory and options."""
    if output.exists() and not output.is_dir():
        raise InputError.of("output", output, "is a file; with workers, name a folder")
    path = output / IDENTITY
    if path.is_file():
        try:
            same = json.loads(path.read_bytes()) == identity
        except ValueError:
            same = False
        if not same:
            raise InputError.of(
                "output", output, "holds labels of another memory or of other options; name a new folder"
            )
        return
    if output.is_dir() and any(output.iterdir()):
        raise InputError.of("output", output, "holds other files; name a new folder")
    try:
        os.makedirs(output, exist_ok=True)
    except OSError as error:
        raise DeepThinkError.of("output", output, f"cannot be made: {error.strerror or error}") from error
    with writing(path) as file:
        file.write(json.dumps(identity, indent=1) + "\n")


def _is_done(inputs: Path, output: Path, iterations: int) -> bool:
    """Whether a file of labels is complete: it has a row for each input and iteration."""
    import pyarrow
    import pyarrow.parquet

    if not output.is_file():
        return False
    try:
        rows = [pyarrow.parquet.read_metadata(path).num_rows for path in (inputs, output)]
    except (pyarrow.ArrowException, OSError):
        return False
    return bool(rows[1] == rows[0] * iterations)
