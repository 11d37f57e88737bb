"""`deepthink run --log`: every row is logged as it is written, and a tracker that fails costs no row."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import Models
from helpers.said import Captured, output
from helpers.tiny import run_words, tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.plugins.trackers.tracking import LogOptions, check


@dataclass
class Recorder:
    """A tracker that keeps what it is told, or fails at one call."""

    fails_at: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name not in ("init", "log", "finish", "define_metric"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> None:
            print(f"{name} was called")  # as trackio does, on stdout
            if name == self.fails_at:
                raise RuntimeError(f"no {name}\nin any form")
            self.calls.append((name, {**dict(enumerate(arguments)), **options}))

        return call

    def Settings(self, **options: Any) -> SimpleNamespace:
        """As wandb's."""
        return SimpleNamespace(**options)

    def logged(self) -> list[Any]:
        """What was logged."""
        return [values for name, values in self.calls if name == "log"]


@pytest.fixture
def command(models: Models, tmp_path: Path) -> list[str]:
    """A small run: one task, two seeds, T = 2."""
    return run_words(tmp_path, models("llama"), "-T", "2", "--seeds", "2", "--quiet")


def pretend(monkeypatch: pytest.MonkeyPatch, service: str, fails_at: str = "") -> Recorder:
    """A recorder in place of an installed tracker."""
    recorder = Recorder(fails_at)
    monkeypatch.setitem(sys.modules, service, recorder)  # type: ignore[arg-type]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(name=name))
    return recorder


@pytest.mark.parametrize("service", ["trackio", "wandb"])
def test_every_row_is_logged_once(
    service: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    recorder = pretend(monkeypatch, service)
    assert "was called" not in output(capsys, *command, "--log", f"{service}:reviews", "--json")
    rows = read_results(tmp_path / "out")
    assert len(recorder.logged()) == len(rows) == 4
    first = recorder.calls[0][1]
    assert (first["project"], first["name"], first["config"]["seeds"]) == ("reviews", "out", [0, 1])
    assert recorder.calls[-1][0] == "finish"


def test_a_logged_row_has_its_figures_over_T(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = pretend(monkeypatch, "wandb")
    run([*command, "--log", "wandb:reviews"])
    row = read_results(tmp_path / "out")[-1]
    settings = "(llama, float32, paper, continued, 4 shots, eta 0.01, momentum 0, seed 1)"
    assert recorder.logged()[-1][0] == {
        f"tiny/accuracy {settings}": row.accuracy,
        f"tiny/macro_f1 {settings}": row.macro_f1,
        "iteration": 2,
    }
    assert ("define_metric", {0: "*", "step_metric": "iteration"}) in recorder.calls


def test_the_rows_of_a_study_are_told_apart(models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, data = tiny_task(tmp_path)
    study = {
        "name": "two-models",
        "title": "Two models",
        "models": [str(models("llama")), str(models("gpt2"))],
        "tasks": [str(task)],
        "data_dir": str(data),
        "protocols": ["paper"],
        "seeds": 1,
        "etas": [0.01, 0.1],
        "iterations": 2,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    recorder = pretend(monkeypatch, "trackio")
    words = ["study", "run", str(tmp_path / "study.yaml"), "-o", str(tmp_path / "out"), "--log", "trackio:p", "-q"]
    assert run(words) == 0
    names = {name for values in recorder.logged() for name in values[0] if "accuracy" in name}
    assert len(names) == 4
    assert "tiny/accuracy (gpt2, float32, paper, continued, 4 shots, eta 0.1, momentum 0, seed 0)" in names
    assert [name for name, _ in recorder.calls].count("init") == 1
    assert len(read_results(tmp_path / "out")) == len(recorder.logged())


def test_nothing_is_imported_or_sent_without_the_option(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    recorders = [pretend(monkeypatch, service) for service in ("trackio", "wandb")]
    assert run(command) == 0
    assert not any(recorder.calls for recorder in recorders)


@pytest.mark.parametrize("fails_at", ["init", "log", "finish"])
def test_a_tracker_that_fails_costs_no_row(
    fails_at: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run([*command, "-o", str(tmp_path / "plain")]) == 0
    recorder = pretend(monkeypatch, "trackio", fails_at)
    assert run([*command, "--log", "trackio:reviews"]) == 0
    assert (tmp_path / "out" / FILE).read_bytes() == (tmp_path / "plain" / FILE).read_bytes()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert line.startswith(f"warning: --log trackio:reviews: no {fails_at} in any form; logging ends, the rows of ")
    assert len(recorder.logged()) == (4 if fails_at == "finish" else 0)


def test_a_continued_run_logs_only_what_it_writes(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run(command)
    recorder = pretend(monkeypatch, "trackio")
    assert run([*command, "--log", "trackio:reviews"]) == 0
    assert recorder.calls == []


@pytest.mark.parametrize("text", ["mlflow:x", "trackio", "trackio:", "wandb: ", ":x", ""])
def test_another_tracker_is_refused_before_the_run(
    text: str, command: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert run([*command, "--log", text]) == 2
    expected = f"--log {text}: not SERVICE:PROJECT; give one of trackio:PROJECT, wandb:PROJECT"
    assert capsys.readouterr().err == f"deepthink: {expected}\n"
    assert not (tmp_path / "out").exists()


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"log wandb:x: wandb is not installed; in a checkout of deepthink: pip install '\.\[wandb\]'"
    ):
        check(LogOptions(log="wandb:x"))


@pytest.mark.soak  # starts the process of wandb
def test_wandb_itself_writes_a_run_offline(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    wandb = pytest.importorskip("wandb", minversion="0.20")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    assert run([*command, "--log", "wandb:reviews"]) == 0
    wandb.teardown()  # waits for its process, as the end of ours does
    assert "warning" not in capsys.readouterr().err
    (written,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = written.read_bytes()
    assert content.count(b"seed 1)") >= 2
    assert str(Path.cwd()).encode() not in content  # nothing about the machine


def test_trackio_itself_writes_a_run_locally(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    trackio = pytest.importorskip("trackio", minversion="0.43")
    storage = pytest.importorskip("trackio.sqlite_storage")
    for module in (trackio.utils, storage):  # TRACKIO_DIR is read when it is imported
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio", raising=False)
    assert run([*command, "--log", "trackio:reviews"]) == 0
    assert "warning" not in capsys.readouterr().err
    (database,) = tmp_path.glob("trackio/reviews*.db")
    with sqlite3.connect(database) as connection:
        logged = connection.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    assert sorted(step for step, _ in logged) == [1, 1, 2, 2]
