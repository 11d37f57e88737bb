"""A run's request holds what its options say, and plans the same run in every process."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from helpers.tiny import tiny_task

from deepthink_cli.data.chat import Chat
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.options import RunOptions
from deepthink_cli.experiments.request import RunRequest
from deepthink_cli.model.options import ModelOptions


@pytest.fixture
def request_of_tiny(tmp_path: Path) -> RunRequest:
    task, data = tiny_task(tmp_path)
    options = RunOptions.checked(etas="0.01,0.1", seeds="2", calibrations="none,batch", limit="5")
    return RunRequest((str(task),), ModelOptions.checked(model="pocket"), options, "paper", data, Chat("Be brief."))


def test_a_request_survives_json_and_pickle(request_of_tiny: RunRequest) -> None:
    assert RunRequest.of_json(json.loads(json.dumps(request_of_tiny.as_json()))) == request_of_tiny
    assert pickle.loads(pickle.dumps(request_of_tiny)) == request_of_tiny
    assert len({request_of_tiny, pickle.loads(pickle.dumps(request_of_tiny))}) == 1


def test_a_request_plans_the_run_of_its_options(request_of_tiny: RunRequest) -> None:
    plan = request_of_tiny.plan()
    assert [task.name for task in plan.tasks] == ["tiny"]
    assert (plan.options.every_seed, plan.options.limit, plan.protocol, plan.options.calibrations) == (
        (0, 1),
        5,
        "paper",
        ("none", "batch"),
    )
    assert plan.chat == Chat("Be brief.")
    assert plan == RunRequest.of_json(request_of_tiny.as_json()).plan()


def test_a_request_without_tasks_is_refused() -> None:
    with pytest.raises(InputError, match="task: no task"):
        RunRequest(()).plan()
