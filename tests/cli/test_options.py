"""Options are declared once: the same name, help, panel and variable in every command, and groups built from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from helpers.said import Captured
from typer.testing import CliRunner

from deepthink_cli.cli import main
from deepthink_cli.cli.grouped import Given, Without, default_text, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.experiment import Experiment
from deepthink_cli.method import MethodOptions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import Flag, Options
from deepthink_cli.prediction.options import LabelOptions
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.tuning.options import TuneOptions

PROGRAM: Any = main.program()
# The same name, but several values or another object in one of the commands.
DIFFERENT = {
    (command, name)
    for command, names in {
        "calibrate": "calibrate",
        "chat": "at seed",
        "demo": "model",
        "diff": "at",
        "doctor": "model",
        "export": "at",
        "generate": "seed",
        "pull": "revision",
        "push": "revision",
        "quantize": "to",
        "report": "at output_format",
        "run": "at calibrate eta model momentum samples task technique update",
        "select": "demos_by model",
        "serve-config": "at",
        "study plan": "model task",
        "study run": "model samples task",
        "think": "calibrate model",
        "tune": "calibrate demos_by eta iterations model momentum positions seed shots technique",
        "vectors": "model seed shots",
    }.items()
    for name in names.split()
}


def commands(group: Any = PROGRAM, before: str = "") -> dict[str, Any]:
    """Every command by its words, those of groups too, as in `study run`."""
    found = {}
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        found |= commands(command, f"{before}{name} ") if is_group else {before + name: command}
    return found


COMMANDS = commands()


def options_of(command: str) -> dict[str, Any]:
    parameters = COMMANDS[command].params
    return {name: parameter for parameter in parameters for name in parameter.opts if name.startswith("--")}


def declarations() -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """The command, the name and the declaration of every option of every command."""
    for command in COMMANDS:
        for parameter in dict.fromkeys(options_of(command).values()):
            declaration = (parameter.opts, parameter.help, parameter.rich_help_panel, parameter.envvar)
            yield command, parameter.name, declaration


def test_an_option_has_the_same_help_panel_and_variable_in_every_command() -> None:
    declared: dict[str, tuple[Any, ...]] = {}
    for command, name, declaration in declarations():
        if (command, name) not in DIFFERENT and name not in ("output", "dry_run"):
            assert declared.setdefault(name, declaration) == declaration, f"{command}: {name}"


@pytest.mark.parametrize("kind", [ModelOptions, MethodOptions, TaskOptions, Experiment, TuneOptions, LabelOptions])
def test_the_default_of_an_option_is_text_that_gives_the_default_of_its_field(kind: type[Options]) -> None:
    texts = {name: default_text(field) for name, field in kind.model_fields.items()}
    given = {name: text for name, text in texts.items() if text is not None}
    assert kind.checked(**given) == kind() == Given(kind, given).checked()


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [
        ("--engine", "flash", "'auto', 'packed', 'padded', 'vllm'"),
        ("--dtype", "float64", "'auto', 'float32', 'bfloat16', 'float16'"),
        ("--quantize", "2bit", "'8bit', '4bit'"),
        ("--device-map", "balanced", "'auto'"),
    ],
)
def test_another_choice_is_refused_with_those_there_are(
    option: str, value: str, choices: str, tmp_path: Path, capsys: Captured
) -> None:
    assert main.run(["think", str(tmp_path), option, value]) == 2
    assert f"'{option}': {value!r} is not one of {choices}." in capsys.readouterr().err


def test_a_run_takes_several_gates_and_the_options_of_its_demonstrations() -> None:
    typed = {"etas": "0.01,0.1", "momentums": "0,0.9", "seeds": "3,5", "shots": "4", "limit": "7"}
    options = Given(Experiment, typed).checked()
    assert (options.etas, options.momentums, options.seeds) == ((0.01, 0.1), (0, 0.9), (3, 5))
    assert (options.shots, options.limit) == ((4,), 7)
    with pytest.raises(InputError) as caught:
        Given(Experiment, {"etas": "2", "iterations": "0", "shots": "none", "limit": "few"}).checked()
    assert [message.split(":")[0] for message in caught.value.messages] == [
        "eta 2",
        "shots none",
        "limit few",
        "iterations 0",
    ]


class Point(Options):
    x: Annotated[int, Flag("Place", "Abscissa.", short="-x")] = 1
    y: Annotated[int, Flag("Place", "Ordinate.")] = 2


@grouped
def move(
    name: str, *, x: Point, common: Annotated[CommonArguments, Without("json", "config")], far: bool = False
) -> None:
    """Move a point."""
    sys.stdout.write(json.dumps([name, x.model_dump(), common.as_json, common.quiet, far]))


def typed(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(move)
    return CliRunner().invoke(app, arguments)


def test_a_command_gets_its_groups_from_flat_options() -> None:
    assert json.loads(typed("a").stdout) == ["a", {"x": 1, "y": 2}, False, False, False]
    assert json.loads(typed("-x", "5", "a", "-q", "--far").stdout) == ["a", {"x": 5, "y": 2}, False, True, True]


def test_an_omitted_option_of_a_group_is_unknown_to_the_command() -> None:
    assert typed("a", "--json").exit_code == 2
    assert "--json" not in typed("--help").output


def test_options_keep_the_order_of_the_parameters_and_of_the_fields() -> None:
    assert list(move.__annotations__) == ["name", "x", "y", "quiet", "verbose", "debug", "far"]
    assert (move.__name__, move.__doc__) == ("move", "Move a point.")
