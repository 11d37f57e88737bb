"""An experiment holds what its options say, and means the same in every process."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import Models
from helpers.tiny import tiny_task
from hypothesis import given
from hypothesis import strategies as st

from deepthink_cli.cli.console import duration
from deepthink_cli.errors import InputError
from deepthink_cli.events import silent
from deepthink_cli.experiments import estimate
from deepthink_cli.experiments.crossing import Box, count, cross, split, without
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Job, Run, known
from deepthink_cli.experiments.prepare import prepare_run
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.tasks.catalogue import find_tasks
from deepthink_cli.tasks.splits import Source


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


def test_an_experiment_without_tasks_is_refused() -> None:
    with pytest.raises(InputError, match="task: no task"):
        cross(Experiment.checked())


AXES = ("models", "shots", "tasks", "etas")
Exclusion = Mapping[str, tuple[int, ...]]


@st.composite
def crossings(draw: st.DrawFn) -> tuple[Box, list[Exclusion]]:
    """Axes of one to four values each, and exclusions of some values of some of them."""
    box = {axis: tuple(range(draw(st.integers(1, 4)))) for axis in AXES}
    excluded = st.dictionaries(
        st.sampled_from(AXES), st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), min_size=1
    )
    return box, draw(st.lists(excluded, max_size=4))


def combinations(box: Box) -> Iterator[tuple[Any, ...]]:
    return product(*(box[axis] for axis in AXES))


def brute_force(box: Box, exclusions: Sequence[Exclusion]) -> set[tuple[Any, ...]]:
    def is_excluded(values: tuple[Any, ...]) -> bool:
        of_axis = dict(zip(AXES, values, strict=True))
        return any(all(of_axis[axis] in gone for axis, gone in each.items()) for each in exclusions)

    return {values for values in combinations(box) if not is_excluded(values)}


@given(crossings())
def test_the_boxes_are_the_product_less_the_exclusions(crossing: tuple[Box, list[Exclusion]]) -> None:
    box, exclusions = crossing
    boxes = [box]
    for excluded in exclusions:
        boxes = without(boxes, excluded)
    held = Counter(values for each in boxes for values in combinations(each))
    assert set(held) == brute_force(box, exclusions)
    assert set(held.values()) <= {1}
    assert sum(map(count, boxes)) == len(held)


@given(crossings())
def test_splitting_keeps_every_combination_and_leaves_single_values(crossing: tuple[Box, list[Exclusion]]) -> None:
    box, _ = crossing
    parts = list(split(box, ["shots", "models"]))
    assert all(len(part["shots"]) == len(part["models"]) == 1 for part in parts)
    assert sorted(values for part in parts for values in combinations(part)) == sorted(combinations(box))


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
