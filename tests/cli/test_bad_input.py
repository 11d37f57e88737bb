"""Bad input gets one line that names the value and says what to do, exit 2, an empty stdout and an untouched disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.said import Captured

from deepthink_cli.cli.main import run

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
