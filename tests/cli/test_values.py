"""What was typed, or stands in a configuration file, becomes what is meant; and what people are shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from helpers.said import Captured
from typer.testing import CliRunner

from deepthink_cli.cli.console import interval_bar, report, table, write_json
from deepthink_cli.cli.data_options import PromptArguments
from deepthink_cli.cli.executor_options import place_of
from deepthink_cli.cli.grouped import Given, Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.values import pattern, unescaped
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors.base import EXECUTORS
from deepthink_cli.io.text import size
from deepthink_cli.method import MethodOptions
from deepthink_cli.model.options import ModelOptions, Offline

app = typer.Typer()


@app.command()
@grouped
def command(
    *,
    method: Given[MethodOptions],
    prompt: PromptArguments,
    offline: Offline = False,
    common: Annotated[CommonArguments, Without("json")],
) -> None:
    sys.stdout.write(json.dumps([float(method.eta), method.keep, prompt.labels, prompt.label_field, offline]))


def parsed(*arguments: str, **environment: str) -> list[Any]:
    result = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


def refusal(file: Path) -> str:
    with pytest.raises(InputError) as caught:
        parsed("--config", str(file))
    return str(caught.value)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "deepthink.toml"


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    return tmp_path / "deepthink.yaml"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(r"a\nb", "a\nb"), (r"\t\r", "\t\r"), (r"\\n", r"\n"), (r"C:\dir", r"C:\dir"), ("a\nb", "a\nb"), ("\\", "\\")],
)
def test_escapes_mean_what_they_do_in_python(typed: str, meant: str) -> None:
    assert unescaped(typed) == meant


def test_a_template_may_be_typed_or_lie_in_a_file(tmp_path: Path) -> None:
    assert pattern(None) is None
    assert pattern(r"{text}\n{label}") == "{text}\n{label}"
    file = written(tmp_path / "template.txt", "Say \\n: {text}\n\n{label}\n")
    assert pattern(str(file)) == "Say \\n: {text}\n\n{label}"


@pytest.mark.parametrize("typed", ["Review:", "gone.txt", "", "many words " * 500])
def test_a_template_that_is_no_file_and_has_no_field_is_refused(typed: str) -> None:
    hint = r"has no {field} and is not a file; write 'Review: {text}\nSentiment: {label}'"
    with pytest.raises(InputError) as caught:
        pattern(typed)
    assert str(caught.value) == f"template {typed}: {hint}"


def test_an_empty_model_name_is_not_the_pocket_model() -> None:
    with pytest.raises(InputError, match=r"^model : "):
        Given(ModelOptions, {"model": ""}).checked()


def test_toml_and_yaml_give_the_same_options(toml: Path, yaml: Path) -> None:
    written(toml, 'eta = 0.5\nkeep = [1, 3]\nlabels = ["a", "b"]\nlabel-field = "gold"\noffline = true\n')
    written(yaml, "eta: 0.5\nkeep: [1, 3]\nlabels:\n- a\n- b\nlabel_field: gold\noffline: true\n")
    expected = [0.5, "1,3", "a,b", "gold", True]
    assert parsed("--config", str(toml)) == parsed("--config", str(yaml)) == expected


def test_an_option_takes_its_value_by_where_it_came_from(toml: Path) -> None:
    file = str(written(toml, "eta = 0.1\n"))
    assert parsed()[0] == 0.01
    assert parsed("--config", file)[0] == 0.1
    assert parsed("--config", file, DEEPTHINK_ETA="0.2")[0] == 0.2
    assert parsed("--config", file, "--eta", "0.3", DEEPTHINK_ETA="0.2")[0] == 0.3


def test_a_value_of_zero_takes_precedence_over_those_below_it(toml: Path) -> None:
    file = str(written(toml, "eta = 0.1\noffline = true\n"))
    assert parsed("--eta", "0", "--config", file, DEEPTHINK_ETA="0.2")[0] == 0
    assert parsed("--config", file, DEEPTHINK_ETA="0")[0] == 0
    assert parsed("--config", file, DEEPTHINK_OFFLINE="0")[4] is False
    assert parsed("--config", str(written(toml, "eta = 0\n")))[0] == 0


def test_a_configuration_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.toml") == f"config {tmp_path}/gone.toml: no such file"
    assert refusal(tmp_path) == f"config {tmp_path}: no such file"


def test_a_configuration_file_of_another_format_is_refused(tmp_path: Path) -> None:
    message = refusal(written(tmp_path / "a.ini", "[eta]"))
    assert message == f"config {tmp_path}/a.ini: unknown format '.ini'; use .toml, .yaml or .yml"


def test_json_holds_no_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json({"accuracy": float("nan")})


def test_a_report_neither_wraps_nor_interprets_its_lines(capsys: Captured) -> None:
    line = "[red]x[/red] :smile: " * 20
    report(line, table("name", "n", rows=[["[b]", "1"], ["much longer", "100"]]))
    first, *others = capsys.readouterr().out.splitlines()
    assert first == line
    assert [other.rstrip() for other in others] == ["name           n", "[b]            1", "much longer  100"]


@pytest.mark.parametrize(
    ("low", "value", "high", "drawn"),
    [(0.5, 0.75, 1.0, "├────●────┤"), (0.6, 0.7, 0.8, "  ├─●─┤    "), (0.95, 1.0, 1.0, "         ├●")],
)
def test_an_interval_is_drawn_in_its_place_on_the_axis(low: float, value: float, high: float, drawn: str) -> None:
    assert interval_bar(low, value, high, 0.5, 1.0, 11) == drawn


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (3 * 2**20, "3.0 MiB"), (2**50, "1024.0 TiB")],
)
def test_sizes_are_in_powers_of_1024(count: int, shown: str) -> None:
    assert size(count) == shown


def refusals(**values: object) -> tuple[str, ...]:
    kind = MethodOptions if values.keys() <= {*MethodOptions.model_fields, "temperature"} else ModelOptions
    with pytest.raises(InputError) as caught:
        kind.checked(**values)
    return caught.value.messages


def test_the_defaults_are_the_papers() -> None:
    method = MethodOptions.checked()
    assert (method.iterations, method.eta, method.momentum, method.positions) == (5, 0.01, 0, "continued")
    assert method.kept == (5,)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [("last", (9,)), ("all", (1, 2, 3, 4, 5, 6, 7, 8, 9)), ("2", (2,)), ("9,1", (1, 9)), ("1, 4 ,4", (1, 4))],
)
def test_the_kept_iterations_are_sorted_and_distinct(keep: str, kept: tuple[int, ...]) -> None:
    assert MethodOptions.checked(iterations=9, keep=keep).kept == kept


@pytest.mark.parametrize("keep", ["", "first", "1,,2", "-1", "1.5", "1;2", "last,1"])
def test_other_words_for_what_to_keep_are_refused(keep: str) -> None:
    assert refusals(keep=keep) == (f"keep {keep}: give last, all, or iterations as in 1,3,5",)


@pytest.mark.parametrize("device", ["", "gpu", "CPU", "cuda:", "cuda:x", "cuda:0\n", "cpu:0", "xcuda"])
def test_other_names_of_devices_are_refused(device: str) -> None:
    assert refusals(device=device) == (f"device {device}: use auto, cpu, cuda, cuda:N or mps",)


def test_a_number_alone_is_of_processes_here() -> None:
    place = place_of("3")
    assert (place.number, place.found, place.address) == (3, None, None)
    assert place_of(None) is None


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("text", "number", "name", "address"),
    [
        ("ray", None, "ray", None),
        ("ray:10.0.0.1:6379", None, "ray", "10.0.0.1:6379"),
        ("4@ray:auto", 4, "ray", "auto"),
        ("8@slurm", 8, "slurm", None),
    ],
)
def test_a_name_is_of_other_machines(text: str, number: int | None, name: str, address: str | None) -> None:
    place = place_of(text, queues=True)
    assert (place.number, place.found, place.address) == (number, EXECUTORS[name], address)


@pytest.mark.plugins
@pytest.mark.parametrize(
    "text", ["", "0", "-1", "two", "4@", "@ray", "ray:", "10001", "4@nowhere", "slurm", "2@slurm:x"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^workers {text}: "):
        place_of(text, queues=True)


@pytest.mark.plugins
def test_a_queue_is_for_runs_alone() -> None:
    with pytest.raises(InputError, match=r"also N@NAME: ray$"):
        place_of("2@slurm")


def test_bytes_that_are_not_utf8_on_the_command_line_are_refused() -> None:
    with pytest.raises(InputError, match=r"template 'a\\udcff,b': holds bytes that are not UTF-8"):
        pattern("a\udcff,b")
