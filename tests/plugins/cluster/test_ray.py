"""A Ray cluster on this machine: the rows of a serial run, models loaded once, and folders that are labelled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Models
from helpers.folders import memory_and_folder
from helpers.said import Captured
from helpers.tiny import run_words

from deepthink_cli.cli.main import run
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.experiments.results import FILE

ray = pytest.importorskip("ray", reason="needs ray (the extra cluster)")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Ray on Windows is experimental")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster with two logical GPUs, which the program finds and leaves by itself."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # Ray counts the GPUs in it, and the suite names none
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("two_gpus")
def test_the_rows_of_a_cluster_are_those_of_a_serial_run(models: Models, tmp_path: Path, capsys: Captured) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "2", "--seeds", "4", "--limit", "3", "--batch-tokens", "64")
    assert run([*words, "-q"]) == 0
    assert run([*words, "-o", str(tmp_path / "ray"), "--workers", "ray:auto"]) == 0
    rows = [sorted((tmp_path / name / FILE).read_bytes().splitlines()) for name in ("out", "ray")]
    assert rows[0] == rows[1]
    assert "2 workers: 4 units done, models loaded 2 times" in capsys.readouterr().err


@pytest.mark.usefixtures("two_gpus")
def test_a_folder_is_labelled_on_a_cluster_as_by_one_process(tmp_path: Path) -> None:
    memory, inputs = memory_and_folder(tmp_path)
    alone, divided = tmp_path / "alone.parquet", tmp_path / "divided.parquet"
    assert run(["predict", memory, str(inputs), "-o", str(divided), "-q", "--workers", "ray:auto"]) == 0
    assert run(["predict", memory, str(inputs), "-o", str(alone), "-q"]) == 0
    assert divided.read_bytes() == alone.read_bytes()


def test_a_cluster_that_is_not_there_is_one_line(models: Models, tmp_path: Path, capsys: Captured) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        assert run([*run_words(tmp_path, models("llama")), "--workers", f"ray:{address}", "-q"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"deepthink: --workers ray:{address}: no Ray cluster answers")
    assert "ray start --head" in line


@pytest.mark.parametrize("address", ["nowhere", "http//x", "host:", ":6379"])
def test_a_wrong_address_is_one_line(address: str) -> None:
    from deepthink_cli.plugins.cluster.ray_cluster import connected

    with pytest.raises(DeepThinkError, match=f"workers ray:{address}: no Ray cluster answers .give HOST:PORT"):
        connected(address)


def test_no_usage_statistics_are_sent() -> None:
    program = (
        "from deepthink_cli.plugins.cluster.ray_cluster import connected\n"
        "try:\n    connected('nowhere')\nexcept Exception: pass\n"
        "from ray._common.usage import usage_lib\nprint(usage_lib.usage_stats_enabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


STARTS_A_CLUSTER = """
import time
from deepthink_cli.plugins.cluster.ray_cluster import connected

ray = connected("local")

@ray.remote
def there():
    return "there"

print(ray.get(there.remote()), flush=True)
time.sleep(600)
"""


def listening(variable: str) -> list[str]:
    """The addresses, in hexadecimal, at which processes with this variable in their environment listen."""
    inodes = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (process / "environ").read_bytes():
                inodes |= {os.readlink(link) for link in (process / "fd").iterdir()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return [words[1] for words in lines if words[3] == "0A" and f"socket:[{words[9]}]" in inodes]


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes and ports in /proc")
def test_a_cluster_that_is_started_here_listens_on_loopback_and_ends_quietly_with_sigterm() -> None:
    mark = f"DEEPTHINK_TEST_CLUSTER={os.getpid()}"
    variables = {**os.environ, **dict([mark.split("=")])}
    command = [sys.executable, "-c", STARTS_A_CLUSTER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as driver:
        assert driver.stdout.readline() == "there\n"
        addresses = {address.partition(":")[0] for address in listening(mark)}
        driver.terminate()
        errors = driver.communicate()[1]
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert (driver.returncode, errors) == (-signal.SIGTERM, "")
