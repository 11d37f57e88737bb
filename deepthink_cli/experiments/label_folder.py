"""Label a folder of Parquet files on a Ray cluster: one file at a time by each worker, which holds model and memory.

Workers read and write the files themselves, so no rows pass through Ray. A file of labels appears when it is
complete; files that are complete are kept, so the same command continues a labelling that was interrupted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any

from deepthink_cli.artifact.opening import find_its_model, load_both, model_options, named_by, open_memory
from deepthink_cli.calibration.registry import from_rows
from deepthink_cli.data.rows import RowSource
from deepthink_cli.engine.opening import tell_of_download
from deepthink_cli.errors import DeepThinkError, InputError, Naming, Problems, current_naming, naming_options, option
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.experiments.executors.ray_cluster import cluster_part, connected
from deepthink_cli.io.atomic import writing
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import ScoreName
from deepthink_cli.prediction.files import write_labels
from deepthink_cli.prediction.options import LabelOptions
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
    labels: LabelOptions = field(default_factory=LabelOptions.checked)
    skip: bool = False

    @property
    def files(self) -> list[Path]:
        """The files of the folder, by name; raises InputError if there are none."""
        files = sorted(Path(self.inputs).glob(f"*{SUFFIX}"))
        if not files:
            raise InputError(f"{self.inputs}: no {SUFFIX} files in it; give a folder of them, or omit {option('ray')}")
        return files

    def identity(self) -> dict[str, Any]:
        """What all labels of the folder depend on, but for their rows."""
        values = {**asdict(self), "options": None, "labels": self.labels.model_dump(mode="json")}
        if self.options is not None:
            values["options"] = self.options.model_dump(mode="json", exclude={"offline", "trust_remote_code"})
        del values["output"], values["memory"]
        return {"memory": open_memory(self.memory, self.iteration).sha256, **json.loads(json.dumps(values))}


@dataclass(frozen=True)
class FolderCounts:
    """Files and rows that were labelled by this call, files that were there already, and rows skipped as bad."""

    files: int
    kept: int
    rows: int
    errors: int


class PartLabeller:
    """What a worker of Ray Data holds: the model and the memory, loaded once, which label file after file."""

    def __init__(self, job: FolderLabels, naming: Naming) -> None:
        self.job, self.memory, self.naming = job, open_memory(job.memory, job.iteration), naming
        spec = find_its_model(self.memory, job.options, silent)
        self.loaded = (spec, *load_both(self.memory, spec, silent))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Label the file that a row names; an error that is known is returned as text."""
        name = row["name"]
        try:
            with naming_options(self.naming):
                return {"name": name, "error": "", **self._labelled(name)}
        except DeepThinkError as error:
            return {"name": name, "error": "\n".join(error.messages), "rows": 0, "errors": 0}
        except OSError as error:
            return {"name": name, "error": f"{name}: {error.strerror or error}", "rows": 0, "errors": 0}

    def _labelled(self, name: str) -> dict[str, int]:
        job, problems = self.job, Problems()
        source = RowSource(str(Path(job.inputs) / name))
        checked = check_rows(self.memory.provenance.demonstrations, source, problems, skip=job.skip)
        problems.raise_any()
        output = Path(job.output) / name
        form = output_rows(self.memory, checked, output, job.calibrate, job.score, job.labels, job.skip)
        label = partial(
            predict_file,
            self.memory,
            source,
            checked=checked,
            calibrate=form.calibrate,
            score=form.score,
            skip=form.skip,
            same_labels=form.by_label,
            loaded=self.loaded,
        )
        counts = write_labels(label, output, form)
        return {"rows": counts.rows, "errors": counts.errors}


def label_folder(job: FolderLabels, address: str, workers: int | None, tell: Tell) -> FolderCounts:
    """Label every file of the folder whose labels are missing, into a file of the same name in `job.output`.

    Raises InputError for a folder without files, for one with labels of other options, and for a calibration that is
    estimated from rows; one error with a line for each file that could not be labelled, after all others are done.
    """
    if from_rows(job.calibrate):
        raise InputError.of(
            "calibrate", ",".join(job.calibrate), f"is estimated from all rows, which {option('ray')} divides; omit it"
        )
    files = job.files
    _claim(Path(job.output), job.identity())
    memory = open_memory(job.memory, job.iteration)
    several = len(memory.iterations)
    missing = [path.name for path in files if not _is_done(path, Path(job.output) / path.name, several)]
    if len(missing) < len(files):
        tell(Note(f"{job.output}: {len(files) - len(missing)} of {len(files)} files are there already"))
    if missing:
        tell_of_download(model_options(memory, job.options), tell, named_by(memory, job.options))
    rows, errors, messages = 0, 0, list[str]()
    for number, row in enumerate(_labelled(job, missing, address, workers) if missing else ()):
        rows, errors = rows + row["rows"], errors + row["errors"]
        messages += _shortened(row["error"].splitlines())
        tell(Progress("labelling files", number + 1, len(missing)))
    if messages:
        problems = Problems()
        problems.add(*messages)
        problems.raise_any()
    return FolderCounts(len(missing), len(files) - len(missing), rows, errors)


def _labelled(job: FolderLabels, names: Sequence[str], address: str, workers: int | None) -> Iterator[dict[str, Any]]:
    """The results of the files, as they come; Ray Data replaces a worker that dies, and its file is labelled again."""
    ray = connected(address)
    try:
        part = cluster_part(workers, job.options.device if job.options else "auto")
        getLogger("ray.data").setLevel(ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        dataset = ray.data.from_items([{"name": name} for name in names], override_num_blocks=len(names)).map(
            PartLabeller,
            fn_constructor_args=(job, current_naming()),
            compute=ray.data.ActorPoolStrategy(size=min(part.workers, len(names))),
            num_cpus=part.cpus,
            num_gpus=part.gpus,
        )
        yield from dataset.iter_rows()
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise DeepThinkError.of(
            "ray",
            None,
            f"labelling stopped: {lines[-1] if lines else type(error).__name__}; finished files are kept, the "
            "same command continues",
        ) from error
    finally:
        ray.shutdown()


def _shortened(messages: Sequence[str]) -> list[str]:
    """The first message about a file, with the number of the others."""
    more = f" (and {len(messages) - 1} more lines)" if len(messages) > 1 else ""
    return [messages[0] + more] if messages else []


def _claim(output: Path, identity: dict[str, Any]) -> None:
    """Make the folder of labels, or check that its labels were made with the same memory and options."""
    if output.exists() and not output.is_dir():
        raise InputError.of("output", output, f"is a file; with {option('ray')}, name a folder")
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
