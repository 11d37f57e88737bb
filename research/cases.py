"""A model on a task with a seed: the demonstrations, dev rows and test rows of docs/evidence.md, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.events import silent
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Job, known, pending, planned
from deepthink_cli.experiments.prepare import SharedRows, prepare_run
from deepthink_cli.io.atomic import whole_lines
from deepthink_cli.io.cache import Store
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from research.evidence.runs import DEV_ROWS, DTYPE, ETA, ROWS


@dataclass(frozen=True, eq=False)
class Case:
    """A task with a seed, and a model; `common` are fields of an `Experiment`."""

    engine: Engine
    spec: ModelSpec
    task: str
    seed: int
    common: dict[str, Any]
    shared: SharedRows = field(default_factory=SharedRows)

    def job(self, store: Store | None = None, **options: Any) -> Job:
        """The job of a run of one technique with these fields of an `Experiment`."""
        experiment = Experiment.checked(tasks=(self.task,), seeds=(self.seed,), **{**self.common, **options})
        run, nowhere = planned(experiment, self.spec), Path("no-folder")  # whose rows would be continued
        prepared = prepare_run(run, nowhere, silent, self.shared)
        chosen = (job for each in pending(prepared) for job in each.jobs(self.engine, store))
        (job,) = (*known(prepared), *chosen)
        return job


def cases(model: str, data_dir: str | None) -> Callable[[str, int], Case]:
    """Load a model once; the function gives its case of a task and a seed, with random demonstrations."""
    spec = find_model(ModelOptions.checked(model=model, device="cpu", dtype=DTYPE), silent)
    engine, shared = load(spec, silent), SharedRows()
    common = {"limit": ROWS, "choose_on": f"dev:{DEV_ROWS}", "data_dir": data_dir}
    common |= {"demos_by": ("random",), "etas": (float(ETA),), "positions": ("continued",)}
    return lambda task, seed: Case(engine, spec, task, seed, common, shared)


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of a file, which may be missing or end in an incomplete line."""
    return [json.loads(line) for line in file.read_bytes()[: whole_lines(file)].splitlines()] if file.is_file() else []
