"""What lets code of others run is a flag of the command line: no file and no variable of the environment does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml
from conftest import Models, write_rows
from helpers.foreign_code import bring_code, changed
from helpers.inline_workers import InlineExecutor
from helpers.said import Captured
from helpers.tiny import run_words, tiny_task

from deepthink_cli.cli.main import program, run
from deepthink_cli.cli.sources import commands_of
from deepthink_cli.experiments.executors import local
from deepthink_cli.experiments.executors.base import Open
from deepthink_cli.io.documents import RUN_CODE
from deepthink_cli.model.options import ModelOptions

FLAGS = sorted(f"--{name.replace('_', '-')}" for name in RUN_CODE)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that is there once foreign code has run."""
    return tmp_path / "ran"


@pytest.fixture
def code(models: Models, tmp_path: Path, ran: Path) -> Path:
    """A model that brings its own code."""
    return bring_code(Path(shutil.copytree(models("llama"), tmp_path / "model")), ran)


def refusals(words: list[str], capsys: Captured) -> list[str]:
    """The lines on stderr of a command that must refuse its input."""
    capsys.readouterr()
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def thinking(code: Path, demos: Path, *more: str) -> list[str]:
    return ["think", str(demos), "-m", str(code), "-T", "1", "-q", "-o", str(demos.parent / "mem.safetensors"), *more]


def program_of(folder: Path, ran: Path) -> list[str]:
    """The words of a run of MBPP, the programs of whose rows make a file."""
    data = folder / "data" / "mbpp"
    data.mkdir(parents=True)
    tests = {"test_list": ["assert True"], "test_setup_code": f"open({str(ran)!r}, 'w')"}
    rows: list[dict[str, object]] = [{"text": f"Task {n}.", "code": f"x = {n}", **tests} for n in range(3)]
    for split in ("prompt", "test"):
        write_rows(data / f"{split}.jsonl", rows)
    return ["run", "--task", "mbpp", "--data-dir", str(data.parent), "-T", "1", "-q", "-o", str(folder / "out")]


def test_every_option_that_lets_code_run_is_a_flag_without_a_variable() -> None:
    parameters = [each for command in commands_of(program()) for each in command.params]
    assert {each.name for each in parameters} >= RUN_CODE
    assert [each.envvar for each in parameters if each.name in RUN_CODE and each.envvar] == []


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("line", ["{name}: true", "{name}: 1", "{name}: [true]"])
@pytest.mark.parametrize("command", ["think", "run", "report"])
def test_a_config_file_lets_no_code_run(flag: str, line: str, command: str, tmp_path: Path, capsys: Captured) -> None:
    for name in (flag.removeprefix("--"), flag.removeprefix("--").replace("-", "_")):
        path = tmp_path / "options.yaml"
        path.write_text(f"verbose: true\n{line.format(name=name)}\n")
        (told,) = refusals([command, "--config", str(path)], capsys)
        assert told.startswith(f"deepthink: {path}:2: {name}: a file must not let code run; omit it")
        assert told.endswith("omit it: only an option on the command line can")


def test_a_models_code_does_not_run_because_of_a_variable(
    code: Path, ran: Path, demos: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPTHINK_TRUST_REMOTE_CODE", "1")
    warning, told = refusals(thinking(code, demos), capsys)
    assert warning.startswith("warning: DEEPTHINK_TRUST_REMOTE_CODE: no option reads it; ")
    assert "contains custom code" in told
    assert not ran.exists()


@pytest.mark.parametrize("way", ["file", "variable"])
def test_a_tasks_programs_do_not_run_because_of_a_file_or_a_variable(
    way: str, ran: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, path = program_of(tmp_path, ran), tmp_path / "options.yaml"
    path.write_text("run-code: true\n")
    if way == "variable":
        monkeypatch.setenv("DEEPTHINK_RUN_CODE", "1")
        assert "its answers are programs" in refusals(words, capsys)[-1]
    else:
        assert "a file must not let code run" in refusals([*words, "--config", str(path)], capsys)[0]
    assert not ran.exists()


def study_of(folder: Path, **fields: Any) -> Path:
    """A study of the tiny task."""
    if not (folder / "tiny.yaml").exists():
        tiny_task(folder)
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({"data_dir": "data", "protocols": "paper", "tasks": "tiny.yaml", **fields}))
    return path


@pytest.mark.parametrize("command", ["plan", "run", "show --json"])
@pytest.mark.parametrize("place", ["model", "models", "scale", "study", "exclude"])
def test_a_study_lets_no_code_run(
    place: str, command: str, code: Path, ran: Path, tmp_path: Path, capsys: Captured
) -> None:
    model = {"model": str(code), "trust_remote_code": True}
    fields: dict[str, Any] = {
        "model": {"models": model},
        "models": {"models": ["pocket", model]},
        "scale": {"scales": {"small": {"models": [model]}}},
        "study": {"models": str(code), "run_code": True, "trust_remote_code": True},
        "exclude": {"models": str(code), "exclude": [{"models": model}]},
    }[place]
    path = study_of(tmp_path, **fields)
    lines = path.read_text().splitlines()
    words = ["study", *command.split()[:1], str(path), *command.split()[1:]]
    more = {"plan": ["--offline"], "run": ["-o", str(tmp_path / "out")]}.get(command, [])
    expected = [
        (number, name)
        for number, line in enumerate(lines, 1)
        if (name := line.strip(" -").partition(":")[0]) in RUN_CODE
    ]
    told = refusals([*words, *more], capsys)
    assert [line.partition("; ")[0] for line in told] == [
        f"deepthink: {path}:{number}: {name}: a file must not let code run" for number, name in expected
    ]
    assert not ran.exists()


def test_a_study_that_forbids_it_is_read(tmp_path: Path) -> None:
    path = study_of(tmp_path, models={"model": "pocket", "trust_remote_code": False})
    assert run(["study", "plan", str(path), "--no-probe", "-q"]) == 0


def test_the_flag_lets_the_models_of_a_study_run_their_code(code: Path, ran: Path, tmp_path: Path) -> None:
    path = study_of(tmp_path, models=str(code))
    run(["study", "plan", str(path), "--offline", "--trust-remote-code", "-q"])
    assert ran.exists()


def test_the_flag_is_that_of_the_workers_too(
    code: Path, ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (transformers.LlamaConfig, transformers.LlamaForCausalLM):
        monkeypatch.setattr(kind, "_auto_class", None)  # transformers marks the classes that it loads this way
    changed(code, model_type="llama")
    for name, kind in (("configuration_evil", "LlamaConfig as Config"), ("modeling_evil", "LlamaForCausalLM as Model")):
        noting = f"open({str(ran)!r}, 'w')\n"
        (code / f"{name}.py").write_text(f"from transformers import {kind}\n{noting}")
    executor = InlineExecutor(1)
    monkeypatch.setattr(local, "LocalExecutor", lambda *_: executor)
    words = run_words(tmp_path / "task", code, "-T", "1", "-q", "--workers", "1")
    assert run([*words, "--trust-remote-code"]) == 0
    assert ran.exists()
    (opened,) = (message.subject for _, message in executor.messages if isinstance(message, Open))
    assert isinstance(opened, ModelOptions)
    assert opened.trust_remote_code


@pytest.mark.parametrize("shape", ["text", "mapping", "flag"])
def test_a_config_file_of_the_harness_lets_no_code_run(
    shape: str, code: Path, ran: Path, tmp_path: Path, capsys: Captured
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    arguments: dict[str, Any] = {
        "text": {"model_args": f"pretrained={code},trust_remote_code=true"},
        "mapping": {"model_args": {"pretrained": str(code), "trust_remote_code": True}},
        "flag": {"model_args": {"pretrained": str(code)}, "trust_remote_code": True},
    }[shape]
    path = tmp_path / "harness.yaml"
    path.write_text(json.dumps({"model": "deepthink", "tasks": "no_such_task", **arguments}))
    told = refusals(["harness", "--config", str(path)], capsys)
    assert told[-1].startswith(f"deepthink: {path}: trust_remote_code: a file must not let code run")
    assert not ran.exists()


@pytest.mark.parametrize(
    "line",
    ["confirm_run_unsafe_code: true", "include_path: {folder}", "tasks: [sst2, {folder}/task.yaml]", "tasks: {folder}"],
)
def test_a_config_file_of_the_harness_runs_no_code_of_answers_and_of_task_files(
    line: str, tmp_path: Path, capsys: Captured
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    ran = tmp_path / "ran"
    (tmp_path / "code.py").write_text(f"open({str(ran)!r}, 'w').close()\ndef words(row): return ''\n")
    (tmp_path / "task.yaml").write_text("task: own\ndoc_to_text: !function code.words\n")
    path = tmp_path / "harness.yml"
    path.write_text(f"model: deepthink\ntasks: no_such_task\n{line}\n".format(folder=tmp_path))
    told = refusals(["harness", "--config", str(path)], capsys)
    name = line.partition(":")[0]
    assert told[-1].startswith(f"deepthink: {path}: {name}: ")
    assert "a file must not let code run" in told[-1]
    assert "on the command line" in told[-1]
    assert not ran.exists()
