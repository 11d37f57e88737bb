"""The scheduler of units: every row once, workers replaced, models loaded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Models
from helpers.inline_workers import InlineExecutor
from helpers.tiny import tiny_task

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Event as Told
from deepthink_cli.events import Warn, silent
from deepthink_cli.experiments.executors.base import Died, Event, Failed, Message, Open, Opened, RowMade, Unit
from deepthink_cli.experiments.executors.handler import RunUnit
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.jobs import Prepared as Job
from deepthink_cli.experiments.prepare import prepare
from deepthink_cli.experiments.results import FILE
from deepthink_cli.experiments.run import RunSummary, execute
from deepthink_cli.model.options import ModelOptions


class Prepared(NamedTuple):
    """The jobs of a run into a folder."""

    jobs: list[Job]
    out: Path


Prepare = Callable[..., Prepared]


def do(*runs: Prepared, **options: Any) -> RunSummary:
    """Write the rows of runs into the folder of the first."""
    return execute([job for run in runs for job in run.jobs], runs[0].out, **options)


@pytest.fixture
def prepared(models: Models, tmp_path: Path) -> Prepare:
    """Prepares a run of two tasks into a folder of this name, with any options."""
    names = ("first", "second")
    tasks = [tiny_task(_made(tmp_path / name), train=12, name=name) for name in names]

    def of_options(folder: str, family: str = "llama", **options: str) -> Prepared:
        model = ModelOptions.checked(model=str(models(family)), batch_tokens=64)
        experiment = Experiment.checked(
            models=(model,),
            tasks=[str(task) for task, _ in tasks],
            protocols=("paper",),
            data_dir=str(tasks[0][1]),
            **{"seeds": "2", "iterations": "2", "limit": "3", "shots": "2", **options},
        )
        return Prepared(prepare(experiment.runs, tmp_path / folder), tmp_path / folder)

    return of_options


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def rows(run: Prepared) -> list[bytes]:
    return sorted((run.out / FILE).read_bytes().splitlines())


def messages(executor: InlineExecutor, kind: type) -> list[tuple[int, Message]]:
    return [(life, message) for life, message in executor.messages if isinstance(message, kind)]


def task_of(message: Message) -> str | None:
    return message.jobs[0].task.name if isinstance(message, RunUnit) else None


@pytest.mark.plugins
@pytest.mark.parametrize(
    "options",
    [
        {"techniques": "deep-thinking,ct-kv:steps=1,ensemble-2", "seeds": "1"},
        {"demos_by": "random,herding", "pool_size": "6", "calibrations": "none,contextual"},
        {"choose_on": "dev:3", "seeds": "1", "scoring": {"score": "mean"}},
    ],
    ids=["techniques", "chosen demonstrations", "dev rows"],
)
def test_the_rows_of_workers_are_those_of_a_serial_run(prepared: Prepare, options: dict[str, str]) -> None:
    serial, divided = prepared("serial", **options), prepared("divided", **options)
    do(serial)
    summary = do(divided, executor=InlineExecutor(2))
    assert rows(divided) == rows(serial)
    assert summary.rows == summary.written == len(rows(serial))


def test_samples_of_workers_are_those_of_a_serial_run(prepared: Prepare) -> None:
    serial, divided = prepared("serial", seeds="1"), prepared("divided", seeds="1")
    do(serial, samples=True)
    do(divided, samples=True, executor=InlineExecutor(2))
    files = {path.name: path.read_bytes() for path in (serial.out / "samples").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (divided.out / "samples").iterdir()}


def test_a_worker_loads_each_model_at_most_once(prepared: Prepare) -> None:
    executor = InlineExecutor(2)
    runs = [prepared("out"), prepared("out", "gpt2"), prepared("out", etas="0.1")]
    do(*runs, executor=executor)
    opened = [(life, message.subject) for life, message in messages(executor, Open) if isinstance(message, Open)]
    assert len(set(opened)) == len(opened) <= 2 * 2
    assert len(rows(runs[0])) == 3 * 2 * 2 * 2


def test_a_dead_worker_is_replaced_and_loses_and_doubles_nothing(prepared: Prepare) -> None:
    def dies_after_a_row(life: int, message: Message, event: Event) -> Iterable[Event]:
        return [event, Died("was killed")] if life <= 2 and isinstance(event, RowMade) else [event]

    serial, divided = prepared("serial"), prepared("divided")
    do(serial)
    told: list[Told] = []
    do(divided, tell=told.append, executor=InlineExecutor(2, dies_after_a_row))
    assert rows(divided) == rows(serial)
    warnings = [event.text for event in told if isinstance(event, Warn)]
    assert any("worker 1 was killed; it was doing first" in text and "tried again" in text for text in warnings)


def test_a_unit_that_kills_its_workers_is_named_and_the_others_are_done(prepared: Prepare) -> None:
    def dies_of_first(life: int, message: Message, event: Event) -> Iterable[Event]:
        return [Died("was killed")] if task_of(message) == "first" else [event]

    run, executor = prepared("out", seeds="1"), InlineExecutor(2, dies_of_first)
    with pytest.raises(DeepThinkError, match="first, seed 0: not done: 3 workers ended while doing it") as caught:
        do(run, executor=executor)
    assert not isinstance(caught.value, InputError)
    assert len(rows(run)) == 2  # those of the second task
    units = [task_of(message) for _, message in messages(executor, Unit)]
    assert units.count("first") == 3
    do(run, executor=InlineExecutor(2))
    assert len(rows(run)) == 4


def test_an_error_that_every_worker_would_meet_is_not_tried_again(prepared: Prepare) -> None:
    def refuses(life: int, message: Message, event: Event) -> Iterable[Event]:
        of_first = task_of(message) == "first"
        return [Failed(("task first: no query fits",))] if of_first else [event]

    run, executor = prepared("out", seeds="1"), InlineExecutor(1, refuses)
    with pytest.raises(InputError, match="task first: no query fits"):
        do(run, executor=executor)
    assert len(messages(executor, Unit)) == 2


def test_workers_that_cannot_load_the_model_are_given_up(prepared: Prepare) -> None:
    executor = InlineExecutor(2, lambda life, message, event: [Died("ended with status 1: no space left on device")])
    with pytest.raises(DeepThinkError, match="no worker is left; the last: ended with status 1: no space left"):
        do(prepared("out"), executor=executor)
    assert executor.lives == 6


@pytest.mark.parametrize("other", ["package", "model", "dtype"])
def test_a_worker_with_another_package_or_model_is_refused(prepared: Prepare, other: str) -> None:
    def differs(life: int, message: Message, event: Event) -> Iterable[Event]:
        if life == 2 and isinstance(event, Opened):
            changes = {"model": {"config_sha256": "0" * 64}, "dtype": {"dtype": "float64"}}.get(other)
            identity = replace(event.identity, **changes) if changes else event.identity
            event = replace(event, identity=identity, package="0.0.1 (abc)" if other == "package" else event.package)
        return [event]

    told: list[Told] = []
    run, executor = prepared("out"), InlineExecutor(2, differs)
    do(run, tell=told.append, executor=executor)
    assert len(rows(run)) == 8
    assert {life for life, _ in messages(executor, Unit)} == {1}
    (warning,) = [event.text for event in told if isinstance(event, Warn) and "not used any more" in event.text]
    assert {"package": "install the same version", "model": "config_sha256", "dtype": "dtype"}[other] in warning


def test_other_rows_of_a_worker_are_refused_by_their_digest(prepared: Prepare, tmp_path: Path) -> None:
    run = prepared("out", seeds="1")
    rows_of_first = tmp_path / "first" / "data" / "tiny" / "test.jsonl"
    rows_of_first.write_text(rows_of_first.read_text().replace("warm", "chilly"))
    with pytest.raises(DeepThinkError, match=r"first, seed 0: .* task first: its test rows have changed since"):
        do(run, executor=InlineExecutor(1))


def test_two_different_rows_of_one_key_are_an_error(prepared: Prepare) -> None:
    def twice(life: int, message: Message, event: Event) -> Iterable[Event]:
        return [event, replace(event, row=replace(event.row, ties=99))] if isinstance(event, RowMade) else [event]

    with pytest.raises(DeepThinkError, match=r"two workers made different rows of first, seed \d"):
        do(prepared("out"), tell=silent, executor=InlineExecutor(1, twice))
