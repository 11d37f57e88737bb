"""Bad input gets one plain line that names the value and its place, exit 2, an empty stdout and an untouched disk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_rows
from helpers.said import Captured
from helpers.synthetic import row, write
from test_corpus import PYDANTIC

from deepthink_cli.cli import main
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.method import GateOptions, MethodOptions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.tuning.options import TuneOptions

GOOD = '{"text": "fine", "label": "yes"}\n{"text": "poor", "label": "no"}\n'


BAD_OPTIONS = {
    "a value": (["--eta", "0"], "--eta 0: the gate is a number in (0, 1]"),
    "a label not in --labels": (["--labels", "yes,maybe"], "demos.jsonl:2: label 'no' is not one of yes, maybe"),
    "an option that is not there": (["--etta", "1"], "No such option: --etta"),
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(arguments: list[str], capsys: Captured) -> list[str]:
    """Run a command that must be refused; returns the lines on stderr."""
    before = {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()} == before
    return err.splitlines()


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_refused(case: str, capsys: Captured) -> None:
    arguments, message = BAD_OPTIONS[case]
    Path("demos.jsonl").write_text(GOOD)
    (line,) = refused(["think", "demos.jsonl", *arguments], capsys)
    assert message in line


def test_independent_mistakes_are_reported_together(capsys: Captured) -> None:
    Path("demos.jsonl").write_text('{"text": "", "label": "yes"}\nnonsense\n{"text": "x", "label": "no"}\n')
    lines = refused(["think", "demos.jsonl", "--eta", "2", "-T", "0", "-o", "nowhere/x"], capsys)
    assert len(lines) == 5
    for part in ("--eta 2:", "--iterations 0", "nowhere/x", "demos.jsonl:1", "demos.jsonl:2"):
        assert sum(part in line for line in lines) == 1


def test_demonstrations_too_long_are_refused_before_any_weights(
    models: Models, tmp_path: Path, capsys: Captured
) -> None:
    folder = tmp_path / "weightless"
    folder.mkdir()
    for file in models("gpt2").glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    write_rows(tmp_path / "long.jsonl", [{"text": "word " * 30, "label": label} for label in "abcabc"])
    (line,) = refused(["think", "long.jsonl", "-m", str(folder)], capsys)
    assert "demonstrations too long: L = " in line
    assert "of 6 demonstrations would fit" in line


def test_brackets_in_a_file_name_survive_an_error_message(capsys: Captured) -> None:
    (line,) = refused(["think", "[red]demos[/red].jsonl"], capsys)
    assert "[red]demos[/red].jsonl: no such file" in line


def test_a_wrong_option_is_named_by_the_line_of_the_file_that_it_came_from(capsys: Captured) -> None:
    Path("demos.jsonl").write_text(GOOD)
    Path("options.toml").write_text('# usual\neta = 7\ndevice = "tpu"\n')
    lines = refused(["think", "demos.jsonl", "--config", "options.toml", "--eta", "8"], capsys)
    assert [line.split(";")[0] for line in lines] == [
        "deepthink: options.toml:3: device tpu: use auto, cpu, cuda, cuda:N or mps",
        "deepthink: --eta 8: the gate is a number in (0, 1]",
    ]


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["think", "--format", "csv", "--eta", "2"], ["--eta 2: the gate", "--format csv: no rows are read"]),
        (["diff", "MEMORY", "MEMORY", "--data-dir", "nowhere", "--limit", "x"], ["--data-dir nowhere", "--limit x"]),
        (["eval", "MEMORY", "rows.jsonl", "--calibrate", "guess", "--limit", "x"], ["--calibrate guess", "--limit x"]),
        (["predict", "MEMORY", "rows.jsonl", "--calibrate", "guess", "--top", "0"], ["--calibrate guess", "--top 0"]),
    ],
)
def test_one_mistake_does_not_hide_another(words: list[str], said: list[str], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "demos.jsonl").write_text(GOOD)
    paths = {"MEMORY": str(tmp_path / "mem.safetensors")}
    assert run(["think", str(tmp_path / "demos.jsonl"), "-T", "1", "-o", paths["MEMORY"], "-q"]) == 0
    assert run([paths.get(word, word) for word in words]) == 2
    told = capsys.readouterr().err
    assert all(f"deepthink: {text}" in told for text in said)


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
    variable: str, value: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv(f"DEEPTHINK_{variable}", value)
    demos = write_rows(tmp_path / "demos.jsonl", [{"text": "x", "label": "a"}, {"text": "y", "label": "b"}])
    assert main.run(["think", str(demos), "--dry-run"]) == 2
    assert capsys.readouterr().err == f"deepthink: {message}\n"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("DEEPTHINK_ETTA", "did you mean DEEPTHINK_ETA?"),
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
