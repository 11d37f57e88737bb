"""The workflow and the action of examples/ci: their form, and what their commands do."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Models, write_reviews, write_rows
from helpers.said import Captured, rows_of

from deepthink_cli.cli.main import run

ROOT = Path(__file__).resolve().parent.parent.parent
CI = ROOT / "examples" / "ci"
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")


CLIENT = """#!{python} -SE
import json, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    socket.send_fds(link, [json.dumps(sys.argv[1:]).encode()], [1, 2])
    sys.exit(int(link.recv(16)))
"""


class Shell:
    """Runs commands as a step of a workflow does, with further variables; `folder` is for its programs."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        folder.mkdir()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(folder / "link"))
        self.server.listen()
        self.server.settimeout(0.05)
        program = folder / "deepthink"
        program.write_text(CLIENT.format(python=sys.executable, address=str(folder / "link")))
        program.chmod(0o755)
        (folder / "python").symlink_to(sys.executable)
        self.variables = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **variables}

    def __call__(self, command: str, variables: Mapping[str, str]) -> int:
        """The exit code of a command."""
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
        with subprocess.Popen(words, env={**self.variables, **variables}) as process:
            while process.poll() is None:
                try:
                    link, _ = self.server.accept()
                except TimeoutError:
                    continue
                with link:
                    _answer(link)
        return process.returncode


def _answer(link: socket.socket) -> None:
    """Run one command line here, with the streams of the program that asks."""
    link.settimeout(None)
    message, streams, _, _ = socket.recv_fds(link, 2**16, 2)
    with ExitStack() as stack:
        out, err = (stack.enter_context(open(stream, "w", encoding="utf-8")) for stream in streams)
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        code = run(json.loads(message))
    link.send(str(code).encode())


def read(name: str) -> Any:
    """A YAML file whose scalars are all strings: `on` is a key, not true."""
    return yaml.load((CI / name).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


@pytest.fixture
def action() -> Any:
    return read("action.yml")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs commands in a directory with the example rows."""
    shutil.copytree(ROOT / "examples" / "reviews", tmp_path / "examples" / "reviews")
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path / "bin", {"GITHUB_OUTPUT": str(tmp_path / "output")})


@pytest.fixture
def corrected(models: Models, shell: Shell, tmp_path: Path, capsys: Captured) -> tuple[Path, Path]:
    """A memory that stores a correction, and rows whose true labels are those that it gives; its raw ones differ."""
    texts = [f"{word} {kind} number {n}" for n in range(6) for word in ("warm", "dull") for kind in ("film", "play")]
    inputs = write_rows(tmp_path / "inputs.jsonl", [{"review": text} for text in texts])
    memory, demos = tmp_path / "corrected.safetensors", write_reviews(tmp_path / "demos.jsonl")
    assert run(["think", str(demos), "-m", str(models("qwen3")), "-T", "2", "-q", "-o", str(memory)]) == 0
    assert run(["calibrate", str(memory), str(inputs), "--calibrate", "batch", "-q"]) == 0
    capsys.readouterr()

    def labels(*options: str) -> list[str]:
        return [row["label"] for row in rows_of(capsys, "predict", memory, inputs, "-q", *options)]

    given = labels()
    assert given != labels("--calibrate", "none")
    rows = [{"review": text, "sentiment": label} for text, label in zip(texts, given, strict=True)]
    return memory, write_rows(tmp_path / "labelled.jsonl", rows)


def run_action(action: Any, shell: Shell, given: dict[str, str]) -> list[tuple[str, int]]:
    """The names of the commands that run and their exit codes, up to the first that fails."""
    values = {f"inputs.{name}": given.get(name, each.get("default", "")) for name, each in action["inputs"].items()}
    results: list[tuple[str, int]] = []
    for step in action["runs"]["steps"]:
        if "run" not in step or (step.get("if") == "inputs.inputs != ''" and not values["inputs.inputs"]):
            continue
        env = {name: EXPRESSION.sub(lambda found: values[found[1]], text) for name, text in step.get("env", {}).items()}
        results.append((step["name"], shell(step["run"], env)))
        if results[-1][1]:
            break
    return results


def test_the_action_names_only_its_inputs_and_runs_none_of_their_text(action: Any) -> None:
    for step in action["runs"]["steps"]:
        named = EXPRESSION.findall(str([step.get("env"), step.get("with")]))
        assert {name.removeprefix("inputs.") for name in named} <= set(action["inputs"])
        assert "${{" not in step.get("run", "")


def test_the_action_labels_evaluates_and_fails_below_its_threshold(
    action: Any, shell: Shell, tmp_path: Path, capsys: Captured
) -> None:
    memory, reviews = tmp_path / "a memory.safetensors", "examples/reviews"
    assert run(["think", str(ROOT / reviews / "demos.jsonl"), "-q", "-T", "2", "-o", str(memory)]) == 0
    given = {
        "memory": memory.name,
        "rows": f"{reviews}/labelled.jsonl",
        "inputs": f"{reviews}/sentences.jsonl",
        "fail-under": "0.8",
    }
    assert run_action(action, shell, given) == [("Install", 0), ("Label", 0), ("Evaluate", 0)]
    results = tmp_path / "deepthink-results"
    assert len((results / "labels.jsonl").read_text().splitlines()) == 200
    accuracy = json.loads((results / "eval.json").read_text())["results"][-1]["accuracy"]
    assert (tmp_path / "output").read_text() == f"metric=accuracy\nvalue={accuracy}\n"
    (tmp_path / "output").unlink()
    strict = {**given, "inputs": "", "fail-under": "1"}
    assert run_action(action, shell, strict) == [("Install", 0), ("Evaluate", 3)]
    assert (tmp_path / "output").read_text() == f"metric=accuracy\nvalue={accuracy}\n"


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_the_action_publishes_what_it_gates_on(
    metric: str, action: Any, shell: Shell, corrected: tuple[Path, Path], tmp_path: Path
) -> None:
    memory, rows = corrected
    given = {"memory": str(memory), "rows": str(rows), "fail-under": f"{metric}=1"}
    assert run_action(action, shell, given) == [("Install", 0), ("Evaluate", 0)]
    assert (tmp_path / "output").read_text() == f"metric={metric}\nvalue=1.0\n"


def test_the_workflow_gates_on_the_correction_that_a_memory_stores(
    shell: Shell, corrected: tuple[Path, Path], tmp_path: Path
) -> None:
    memory, rows = corrected
    (job,) = read("workflow.yml")["jobs"].values()
    commands = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    env = {**job["env"], "RESULTS": "kept", "INPUTS": str(rows), "LABELLED": str(rows), "FAIL_UNDER": "1"}
    results = tmp_path / "kept"
    results.mkdir()
    shutil.copy(memory, results / "memory.safetensors")
    assert [shell(commands[name], env) for name in ("Label", "Evaluate")] == [0, 0]
    judged = json.loads((results / "eval.json").read_text())["judged"]
    assert (judged["value"], judged["correction"], judged["iteration"]) == (1.0, "stored", 2)
    labels = [json.loads(line)["label"] for line in (results / "labels.jsonl").read_text().splitlines()]
    assert labels == [json.loads(line)["sentiment"] for line in rows.read_text().splitlines()]


def test_the_workflow_labels_evaluates_and_keeps_the_results(shell: Shell, tmp_path: Path) -> None:
    workflow = read("workflow.yml")
    assert set(workflow) == {"name", "on", "permissions", "jobs"}
    (job,) = workflow["jobs"].values()
    commands = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    assert list(commands) == ["Install", "Think", "Label", "Evaluate"]
    for name in ("Think", "Label", "Evaluate"):
        assert shell(commands[name], job["env"]) == 0
    results = tmp_path / job["env"]["RESULTS"]
    assert {path.name for path in results.iterdir()} >= {
        "memory.safetensors",
        "labels.jsonl",
        "eval.json",
        "report.html",
    }
    assert json.loads((results / "eval.json").read_text())["n"] == 64
    assert shell(commands["Evaluate"], {**job["env"], "FAIL_UNDER": "1"}) == 3
    last = job["steps"][-1]
    assert (last["if"], last["with"]["path"]) == ("always()", "${{ env.RESULTS }}")
    assert last["uses"].startswith("actions/upload-artifact@")


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="needs actionlint")
def test_actionlint_finds_nothing() -> None:
    subprocess.run(["actionlint", str(CI / "workflow.yml"), str(CI / "soak.yml")], check=True)
