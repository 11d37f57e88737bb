"""An experiment holds what its options say, and means the same in every process."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from conftest import Models
from helpers.tiny import tiny_task

from deepthink_cli.cli.console import duration
from deepthink_cli.errors import InputError
from deepthink_cli.events import silent
from deepthink_cli.experiments import estimate
from deepthink_cli.experiments.experiment import Experiment, run_tasks
from deepthink_cli.experiments.jobs import Job, Run, known
from deepthink_cli.experiments.prepare import prepare_run
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.sources import Source


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    task, data = tiny_task(tmp_path)
    options = {"etas": "0.01,0.1", "seeds": "2", "shots": "4,2", "calibrations": "none,batch", "limit": "5"}
    where = {"tasks": (str(task),), "protocols": ("paper",), "data_dir": str(data)}
    return Experiment.checked(**options, **where, models=("pocket",), chat=True, system="Be brief.")


def test_an_experiment_survives_json_and_pickle(experiment: Experiment) -> None:
    assert Experiment.model_validate(json.loads(experiment.model_dump_json())) == experiment
    for run in experiment.runs:
        assert len({run, pickle.loads(pickle.dumps(run)), Experiment.model_validate(run.model_dump())}) == 1


def test_an_experiment_without_tasks_is_refused() -> None:
    with pytest.raises(InputError, match="task: no task"):
        run_tasks(Experiment.checked().tasks)


@pytest.fixture
def prepared(models: Models, tmp_path: Path) -> list[Job]:
    """One task, two seeds, two gates, T = 3."""
    task, data = tiny_task(tmp_path)
    options = Experiment.checked(iterations=3, etas="0.01,0.1", seeds="2", protocols=("paper",))
    spec = open_model(ModelOptions(model=str(models("llama"))))
    run = Run(options, spec, tuple(find_tasks([str(task)])), Source(data))
    return known(prepare_run(run, tmp_path / "out", silent, {}))


def test_what_is_repeated_are_tokens_that_are_read_and_scored(
    prepared: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = sum(len(job.demonstrations.token_ids) for job in prepared)
    of_input = estimate.length_of(prepared[0].task)
    found = []
    for rates in ((1.0, 0.0), (0.0, 1.0)):
        monkeypatch.setattr(estimate, "measure", lambda *_, rates=rates: rates)
        estimated = estimate.estimate_runs(prepared, tmp_path / "out")
        assert estimated.seconds is not None
        found.append(round(estimated.seconds - estimated.loading, 6))
    assert found == [(1 + 2 * 2) * length, 2 * 12 * 5 * of_input]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (99.4, "99 s"), (270, "4.5 minutes"), (26_000, "7.2 hours")])
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
