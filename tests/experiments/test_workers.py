"""Worker processes: the rows of a serial run, whoever is killed; and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Models
from helpers.forks import Forks
from helpers.tiny import run_words
from helpers.waiting import wait_until

from cluster_kills import workers_of
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors.local import END, LocalExecutor, visible_gpus, worker_variables
from deepthink_cli.experiments.results import FILE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the worker processes in /proc")


HOLDING = """
import sys
from queue import SimpleQueue
from deepthink_cli.experiments.executors.local import _read
from deepthink_cli.io.temporary import temporary_folder
with temporary_folder(sys.argv[1]):
    _read(sys.stdin.buffer, SimpleQueue())
"""


@pytest.mark.parametrize("said", [END, b""], ids=["stopped", "driver killed"])
def test_a_worker_leaves_no_temporary_folder(said: bytes, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", HOLDING, str(tmp_path)], input=said, check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.soak  # starts six processes; in the suite the workers of tests/experiments/test_scheduler.py die
def test_killed_workers_and_a_killed_driver_lose_and_double_nothing(
    models: Models, tmp_path: Path, forks: Forks
) -> None:
    options = "-T 3 --seeds 40 --limit 4 --shots 2 --batch-tokens 64 -q"
    words = run_words(tmp_path, models("llama"), *options.split())
    assert run(words) == 0
    whole = sorted((tmp_path / "out" / FILE).read_bytes().splitlines())
    folder = tmp_path / "divided"
    continued = [*words, "-o", str(folder)]
    driver = forks.start([*continued, "--workers", "2"])
    wait_until(lambda: (folder / FILE).is_file() and (folder / FILE).stat().st_size > 0)
    workers = workers_of(driver.number)
    os.kill(workers[0], signal.SIGKILL)
    wait_until(lambda: bool(set(workers_of(driver.number)) - set(workers)) or not driver.runs())
    workers = workers_of(driver.number)
    driver.kill()
    wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)  # no orphans
    assert run(continued) == 0
    assert sorted((folder / FILE).read_bytes().splitlines()) == whole


def test_a_run_that_is_refused_leaves_no_process(models: Models, tmp_path: Path) -> None:
    words = run_words(tmp_path, models("llama"), "--workers", "2", "--shots", "1000")
    assert run(words) == 2
    assert workers_of(os.getpid()) == []


def test_a_worker_has_its_own_gpus_and_its_share_of_the_cores() -> None:
    with closing(LocalExecutor(2, ("4", "5", "6", "7"))) as executor:
        assert executor.shares == [("4", "5"), ("6", "7")]
    variables = worker_variables({"OMP_NUM_THREADS": "3"}, ("4", "5"), 2)
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["OMP_NUM_THREADS"]) == ("4,5", "3")
    variables = worker_variables({}, (), 10_000)
    assert "CUDA_VISIBLE_DEVICES" not in variables
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "1"


def test_a_numbered_device_and_more_workers_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    with pytest.raises(InputError, match="device cuda:1: with workers all visible GPUs are divided"):
        visible_gpus("cuda:1", 2)
    assert visible_gpus("cpu", 2) == ()
    monkeypatch.setattr("deepthink_cli.model.options.choose_device", lambda device: torch.device("cuda"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert visible_gpus("auto", 2) == ("2", "3")
    with pytest.raises(InputError, match="workers 3: a worker has a GPU of its own, and there are 2"):
        visible_gpus("auto", 3)
