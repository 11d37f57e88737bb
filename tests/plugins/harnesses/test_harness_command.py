"""`deepthink harness`: the command line of lm-evaluation-harness with the model `deepthink`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Models
from helpers.harness_tasks import harness_task, write_data
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured, output

from deepthink_cli.cli.main import run

lm_eval_tasks = pytest.importorskip("lm_eval.tasks", reason="lm-eval is not installed")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tasks of the test are indexed, and the machine is not described, which take the harness long."""
    monkeypatch.setattr(lm_eval_tasks, "TaskManager", partial(lm_eval_tasks.TaskManager, include_defaults=False))
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


def task_file(folder: Path, shape: str = "fixed-words", **changes: Any) -> str:
    write_data(folder)
    path = folder / "reviews.yaml"
    path.write_text(yaml.safe_dump(harness_task(folder, shape, "reviews", **changes)))
    return str(path)


def test_help_imports_neither_torch_nor_the_harness() -> None:
    assert not modules_after(["harness", "--help"]) & (HEAVY | {"lm_eval"})


def test_a_task_file_is_evaluated_and_its_results_written(models: Models, tmp_path: Path, capsys: Captured) -> None:
    model = f"pretrained={models('llama')},iterations=2,eta=0.2"
    words = ["--tasks", task_file(tmp_path), "--model_args", model, "--output_path", str(tmp_path / "out.json")]
    assert "reviews" in output(capsys, "harness", *words)
    (path,) = tmp_path.glob("out_*.json")
    config = json.loads(path.read_text())["config"]
    assert config["model"] == "deepthink"
    assert (config["deepthink"]["iterations"], config["deepthink"]["readings"]) == (2, 1)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--model_args", "pretrained=pocket,eta=7"], 2, "deepthink: --model_args eta=7"),
        (["--model", "nonsense"], 1, "deepthink: lm-eval: ValueError: Attempted to load model 'nonsense'"),
        (["--num_fewshot", "many"], 2, "argument --num_fewshot"),
    ],
)
def test_mistakes_are_one_line(words: list[str], code: int, told: str, tmp_path: Path, capsys: Captured) -> None:
    assert run(["harness", "--tasks", task_file(tmp_path), *words]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if told in line]
    assert len(lines) == 1


def test_an_unknown_task_is_one_line(capsys: Captured) -> None:
    assert run(["harness", "--tasks", "no_such_task", "--model_args", "pretrained=pocket"]) == 1
    assert "deepthink: lm-eval: ValueError: Tasks not found: no_such_task" in capsys.readouterr().err


def test_the_commands_of_the_harness_have_their_own_help(capsys: Captured) -> None:
    assert "--include_path" in output(capsys, "harness", "run", "--help")
