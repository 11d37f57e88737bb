"""No message is in pydantic's words, wherever the refused value stands, and each names the place that it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows
from helpers.said import Captured
from helpers.synthetic import row, write
from test_corpus import PYDANTIC

from deepthink_cli.cli import main
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.method import GateOptions, MethodOptions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.tuning.options import TuneOptions

TYPED = ["x", "", "-1", "2.5", "nan", "1,,2", "a b"]
ODD: list[Any] = ["x", "", "-1", "2.5", None, True, 7, -1, [], {}, [1, "a"], float("nan")]


def refusal(call: Callable[..., object], *arguments: object, **options: object) -> str:
    """The message with which a call is refused; empty if it is not."""
    try:
        call(*arguments, **options)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", [ModelOptions, MethodOptions, TaskOptions, GateOptions, Experiment, TuneOptions])
def test_options_are_refused_in_plain_words(kind: Any) -> None:
    for name in kind.model_fields:
        for value in TYPED:
            assert not re.search(PYDANTIC, refusal(kind.checked, **{name: value}))


def test_rows_of_a_run_are_refused_in_plain_words(tmp_path: Path) -> None:
    line = json.loads(row(50).line())
    fields = [(line, name) for name in line] + [(line["setting"], name) for name in line["setting"]]
    for values, name in [*fields, (line, "extra"), (line["setting"], "extra")]:
        before = values.get(name)
        for value in ODD:
            values[name] = value
            folder = write(tmp_path / "run", [])
            (folder / FILE).write_text(json.dumps(line) + "\n")
            assert not re.search(PYDANTIC, refusal(read_results, folder))
        values[name] = before
        if before is None:
            del values[name]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ETA", "7", "DEEPTHINK_ETA=7: the gate is a number in (0, 1]; the paper uses 0.01"),
        ("KEEP", "9", "DEEPTHINK_KEEP=9: iterations run from 1 to 5; raise -T or name others"),
        ("CHAT", "maybe", "DEEPTHINK_CHAT: maybe is neither true nor false"),
        ("DTYPE", "int8", "DEEPTHINK_DTYPE: 'int8' is not one of 'auto', 'float32', 'bfloat16', 'float16'."),
        ("CONFIG", "nowhere", "DEEPTHINK_CONFIG=nowhere: no such file"),
        ("MODEL", "./x", "DEEPTHINK_MODEL=./x: no such model directory; check the path, or give a hub id such as gpt2"),
    ],
)
def test_a_wrong_value_is_named_by_its_variable(
    variable: str,
    value: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    monkeypatch.setenv(f"DEEPTHINK_{variable}", value)
    demos = write_rows(tmp_path / "demos.jsonl", [{"text": "x", "label": "a"}, {"text": "y", "label": "b"}])
    assert main.run(["think", str(demos), "--dry-run"]) == 2
    assert capsys.readouterr().err == f"deepthink: {message}\n"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("DEEPTHINK_ETTA", "did you mean DEEPTHINK_ETA?"),
        ("DEEPTHINK_DEVICEMAP", "did you mean DEEPTHINK_DEVICE_MAP?"),
        ("DEEPTHINK_DRY_RUN", "--dry-run has no variable, give it on the command line"),
        ("DEEPTHINK_QWZX", "unset it, or see docs/concepts.md for the names"),
    ],
)
def test_a_variable_that_nothing_reads_is_reported(
    name: str, advice: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv(name, "0.1")
    monkeypatch.setenv("DEEPTHINK_ETA", "0.1")
    assert main.run(["report", "nowhere"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"warning: {name}: no option reads it; {advice}"
    assert main.run(["--version"]) == 0
