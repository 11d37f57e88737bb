"""The estimate of a run is the sum of what its jobs repeat, at the rates of a probe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Models
from helpers.tiny import tiny_task

from deepthink_cli.cli.console import duration
from deepthink_cli.experiments import estimate
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Job, known
from deepthink_cli.experiments.plan import Run
from deepthink_cli.experiments.prepare import prepare_run
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.sources import Source


@pytest.fixture
def prepared(models: Models, tmp_path: Path) -> list[Job]:
    """One task, two seeds, two gates, T = 3."""
    task, data = tiny_task(tmp_path)
    options = Experiment.checked(iterations=3, etas="0.01,0.1", seeds="2", protocols=("paper",))
    spec = open_model(ModelOptions(model=str(models("llama"))))
    return known(prepare_run(Run(options, spec, tuple(find_tasks([str(task)])), Source(data)), tmp_path / "out"))


def test_what_is_repeated_are_tokens_inputs_and_steps(
    prepared: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = sum(len(job.demonstrations.token_ids) for job in prepared)
    found = []
    for rates in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)):
        monkeypatch.setattr(estimate, "measure", lambda *_, rates=rates: rates)
        estimated = estimate.estimate_runs(prepared, tmp_path / "out")
        assert estimated.seconds is not None
        found.append(round(estimated.seconds - estimated.loading, 6))
    assert found == [(1 + 2 * 2) * length, 2 * 12 * 5, 0]


def test_tasks_that_are_not_timed_are_like_the_mean(
    prepared: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "measure", lambda *_: (0.0, 1.0, 0.0))
    monkeypatch.setattr(estimate, "BUDGET", -1.0)
    again = known(prepare_run(replace(prepared[0].run), tmp_path / "out"))
    estimated = estimate.estimate_runs([*prepared, *again], tmp_path / "out")
    assert estimated.inputs == 2 * 2 * 12 * 5
    assert estimated.seconds == pytest.approx(estimated.inputs + estimated.loading)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (99.4, "99 s"), (270, "4.5 minutes"), (26_000, "7.2 hours")])
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
