"""Help pages: commands in groups, the options that come first, and every option with --help-all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from deepthink_cli.cli.about import GROUPS, OTHERS, about_of
from deepthink_cli.cli.help import MAX_OPTIONS, ProgramGroup
from deepthink_cli.cli.main import program, run

Captured = pytest.CaptureFixture[str]
PROGRAM: Any = program()


def commands(group: Any = PROGRAM, before: str = "") -> Iterator[tuple[str, set[str]]]:
    """The words of every command, and its options without those for its help."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, {each.opts[0] for each in command.params if each.param_type_name == "option"}


OPTIONS = dict(commands())


def first(name: str) -> frozenset[str]:
    """The options that come first in the help of a command."""
    command = PROGRAM
    for word in name.split():
        command = command.commands[word]
    return about_of(command.callback).first


def page(capsys: Captured, *words: str) -> str:
    assert run(list(words)) == 0
    return capsys.readouterr().out


def listed(page: str) -> set[str]:
    """The options of a help page."""
    first = {line.strip("│* ").split(" ")[0] for line in page.splitlines()}
    return first & {option for options in OPTIONS.values() for option in options}  # a broken line may begin with one


@pytest.mark.plugins
def test_every_command_is_in_one_group_and_the_demo_is_the_first() -> None:
    panels = [each.rich_help_panel for each in PROGRAM.commands.values()]
    assert list(dict.fromkeys(panels)) == list(GROUPS)
    assert panels == sorted(panels, key=GROUPS.index)
    assert next(iter(PROGRAM.commands)) == "demo"


@pytest.mark.plugins
@pytest.mark.parametrize("words", [["--help"], ["--help-all"]])
def test_the_help_of_the_program_shows_the_groups_in_their_order(words: list[str], capsys: Captured) -> None:
    text = page(capsys, *words)
    places = [text.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)


def test_a_command_of_another_package_comes_after_all_others() -> None:
    app = typer.Typer()
    for name, group in (("mine", OTHERS), ("doctor", "This machine")):
        app.command(name, rich_help_panel=group)(lambda: None)
    group: Any = ProgramGroup(name="deepthink", commands=typer.main.get_group(app).commands)
    assert list(group.commands) == ["doctor", "mine"]


@pytest.mark.plugins
def test_a_command_with_many_options_names_about_ten_that_come_first() -> None:
    for name, options in OPTIONS.items():
        assert bool(first(name)) == (len(options) > MAX_OPTIONS), name
        assert len(first(name)) <= MAX_OPTIONS


@pytest.mark.plugins
@pytest.mark.parametrize("command", sorted(OPTIONS.keys() - {"harness"}))
def test_help_all_shows_every_option_and_help_says_how_many_more_there_are(
    command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    whole, short = (page(capsys, *command.split(), flag) for flag in ("--help-all", "--help"))
    assert listed(whole) == OPTIONS[command]
    assert "more options" not in whole
    if first(command):
        assert len(listed(short)) == len(first(command))
        left_out = len(OPTIONS[command]) - len(listed(short))
        assert f"{left_out} more options: deepthink {command} --help-all" in short.splitlines()[-3:][0]
    else:
        assert listed(short) == OPTIONS[command]
        assert "--help-all" not in short


def test_an_option_that_help_does_not_show_is_read(capsys: Captured) -> None:
    assert "--dtype" not in listed(page(capsys, "think", "--help"))
    assert run(["think", "--dtype", "float64"]) == 2
    assert "'--dtype': 'float64' is not one of" in capsys.readouterr().err


def test_help_names_extras_without_an_escape_and_the_default_of_select(capsys: Captured) -> None:
    assert "\\[" not in page(capsys, "run", "--help-all")
    text = " ".join(page(capsys, "select", "--help").replace("│", " ").split())
    assert "Default: none; only methods that read the rows with a model need one." in text
    assert "memory's model" not in text
