"""Nothing that the program starts imports modules of the working directory, where somebody's data lie."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Models
from helpers.said import Captured
from helpers.tiny import run_words

from deepthink_cli.cli.main import run
from deepthink_cli.plugins.run_code.program import Program, passes

NAMES = (
    *("deepthink_cli", "transformers", "torch", "numpy", "queue"),
    *("pickle", "threading", "random", "typing", "json"),
)


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file in which modules of the working directory write their names, once one has run."""
    folder, ran = tmp_path / "poisoned", tmp_path / "ran"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"with open({str(ran)!r}, 'a') as file:\n    file.write('{name} ')\n")
    monkeypatch.chdir(folder)
    yield ran
    assert not ran.exists(), ran.read_text()


@pytest.fixture
def words(models: Models, tmp_path: Path) -> list[str]:
    """A run of one unit."""
    return run_words(tmp_path, models("llama"), "-T", "1", "--seeds", "1", "--limit", "1", "--shots", "2", "-q")


@pytest.fixture
def memory(thought_of: Callable[..., Path], demos: Path) -> Path:
    return thought_of(demos.parent / "mem.safetensors", "llama", "-T", "1")


@pytest.mark.parametrize("name", NAMES)
def test_the_modules_of_these_tests_would_run(name: str, ran: Path) -> None:
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    subprocess.run([sys.executable, "-m", name], env=usual, stderr=subprocess.DEVNULL)
    assert name in ran.read_text().split()
    ran.unlink()


def test_workers_of_labels(memory: Path, tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # an empty name, as of PYTHONPATH=$PYTHONPATH:DIR, is this directory
    words = ["predict", str(memory), str(tmp_path / "demos.jsonl"), "-o", str(tmp_path / "labels.jsonl"), "-q"]
    assert run([*words, "--workers", "1"]) == 0


@pytest.mark.soak
def test_workers_of_a_run(words: list[str], ran: Path) -> None:
    assert run([*words, "--workers", "1"]) == 0


@pytest.mark.soak
def test_workers_of_a_cluster(words: list[str], ran: Path) -> None:
    pytest.importorskip("ray", reason="needs ray (the extra cluster)")
    assert run([*words, "--workers", "1@ray"]) == 0


def test_the_script_for_slurm(words: list[str], models: Models, tmp_path: Path, ran: Path) -> None:
    assert run([*words, "--workers", "1@slurm"]) == 0
    script = tmp_path / "out.sbatch"
    script.write_text(script.read_text().replace(str(models("llama")), "./nowhere"))  # so that it ends at once
    variables = os.environ | {"SLURM_ARRAY_TASK_ID": "1"}
    done = subprocess.run(["bash", str(script)], env=variables, capture_output=True, text=True)
    assert done.stderr.startswith("deepthink: -m ./nowhere: no such model directory")


def test_a_program_that_is_judged(ran: Path) -> None:
    program = Program("", "def answer():\n    import queue\n    return 1\n", "import random\nassert answer() == 1\n")
    assert passes(program, 10)


def test_pip(tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert run(["download", "-o", str(tmp_path / "model"), "-q"]) == 1


def test_the_command_that_serves_memories_in_vllm(memory: Path, tmp_path: Path, ran: Path, capsys: Captured) -> None:
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    started = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import queue'], check=True)\n"
    program.write_text(f"#!{sys.executable}\n{started}")  # as vLLM starts its own processes
    program.chmod(0o755)
    assert run(["serve-config", str(memory), "-q"]) == 0
    variables = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", capsys.readouterr().out], env=variables, check=True)


STARTS_AS_LIBRARIES_DO = """
import subprocess, sys
from deepthink_cli.cli import main
main.run = lambda arguments: subprocess.run([sys.executable, "-c", "import queue"]).returncode
main.main()
"""


def test_what_libraries_start(ran: Path) -> None:
    assert subprocess.run([sys.executable, "-P", "-c", STARTS_AS_LIBRARIES_DO]).returncode == 0
