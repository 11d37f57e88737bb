"""`--workers`: processes of this machine, or what other machines do, as N@NAME:ADDRESS."""

from __future__ import annotations

import pytest
from helpers.said import Captured

from deepthink_cli.cli.executor_options import place_of
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors.base import EXECUTORS


def test_a_number_alone_is_of_processes_here() -> None:
    place = place_of("3")
    assert (place.number, place.found, place.address) == (3, None, None)
    assert place_of(None) is None


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("text", "number", "name", "address"),
    [
        ("ray", None, "ray", None),
        ("ray:10.0.0.1:6379", None, "ray", "10.0.0.1:6379"),
        ("4@ray:auto", 4, "ray", "auto"),
        ("8@slurm", 8, "slurm", None),
    ],
)
def test_a_name_is_of_other_machines(text: str, number: int | None, name: str, address: str | None) -> None:
    place = place_of(text, queues=True)
    assert (place.number, place.found, place.address) == (number, EXECUTORS[name], address)


@pytest.mark.plugins
@pytest.mark.parametrize(
    "text", ["", "0", "-1", "two", "4@", "@ray", "ray:", "10001", "4@nowhere", "slurm", "2@slurm:x"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^workers {text}: "):
        place_of(text, queues=True)


@pytest.mark.plugins
def test_a_queue_is_for_runs_alone() -> None:
    with pytest.raises(InputError, match=r"also N@NAME: ray$"):
        place_of("2@slurm")


def test_a_run_that_names_no_workers_is_one_line(capsys: Captured) -> None:
    assert run(["run", "--task", "sst2", "--workers", "0"]) == 2
    assert capsys.readouterr().err.startswith("deepthink: --workers 0: a whole number from 1 to 10000")
