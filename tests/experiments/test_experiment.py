"""An experiment holds what its options say, and means the same in every process."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from helpers.tiny import tiny_task

from deepthink_cli.data.chat import Chat
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.crossing import cross
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.plan import planned
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    task, data = tiny_task(tmp_path)
    options = {"etas": "0.01,0.1", "seeds": "2", "shots": "4,2", "calibrations": "none,batch", "limit": "5"}
    where = {"tasks": (str(task),), "protocols": ("paper",), "data_dir": str(data)}
    return Experiment.checked(**options, **where, models=("pocket",), chat=True, system="Be brief.")


def test_an_experiment_survives_json_and_pickle(experiment: Experiment) -> None:
    assert Experiment.model_validate(json.loads(experiment.model_dump_json())) == experiment
    for run in cross(experiment).runs:
        assert len({run, pickle.loads(pickle.dumps(run)), Experiment.model_validate(run.model_dump())}) == 1


def test_an_experiment_is_crossed_into_runs_of_its_options(experiment: Experiment) -> None:
    plans = [planned(run, open_model(run.models[0])) for run in cross(experiment).runs]
    assert [plan.options.shots for plan in plans] == [(4,), (2,)]
    for plan in plans:
        assert [task.name for task in plan.tasks] == ["tiny"]
        assert (plan.options.seeds, plan.options.limit, plan.options.protocols) == ((0, 1), 5, ("paper",))
        assert plan.options.calibrations == ("none", "batch")
        assert plan.options.models == (ModelOptions.checked(model="pocket"),)
        assert plan.chat == Chat("Be brief.")


def test_values_that_mean_the_same_for_a_task_are_refused(experiment: Experiment) -> None:
    both = experiment.model_copy(update={"sampling": ("random", None)})
    with pytest.raises(InputError, match="sampling random,null: random and null are the same for task tiny"):
        cross(both)


def test_an_experiment_without_tasks_is_refused() -> None:
    with pytest.raises(InputError, match="task: no task"):
        cross(Experiment.checked())
