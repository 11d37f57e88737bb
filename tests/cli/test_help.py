"""Help pages: commands in groups, the options that come first, every option with --help-all; and words completed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.imports import HEAVY
from helpers.said import Captured, json_of, output

from deepthink_cli.cli.about import PLUGINS, about_of
from deepthink_cli.cli.command import WHICH
from deepthink_cli.cli.main import GROUPS, program, run
from deepthink_cli.plugins.catalogue.list_command import REGISTRIES

PROGRAM: Any = program()
MAX_OPTIONS = 12  # a command with more options names the first ones


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
    return output(capsys, *words)


def listed(page: str) -> set[str]:
    """The options of a help page."""
    first = {word.rstrip(",") for line in page.splitlines() for word in line.split()[:2]}
    return first & {option for options in OPTIONS.values() for option in options}  # a broken line may begin with one


def test_commands_stand_in_groups_the_demo_in_the_first_and_other_commands_of_plugins_last() -> None:
    panels = {name: each.rich_help_panel for name, each in PROGRAM.commands.items()}
    assert list(GROUPS) == list(dict.fromkeys(panels.values()))[: len(GROUPS)]
    assert (panels["demo"], panels["tasks"], panels["chat"]) == (next(iter(GROUPS)), "Experiments", PLUGINS)


def test_the_help_of_the_program_fits_a_terminal_and_begins_with_which_command_serves_what(capsys: Captured) -> None:
    lines = page(capsys, "--help").splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    places = [
        text.index(words)
        for words in (*WHICH, "Options:", *(f"{group}:" for group in (*GROUPS, "This machine", PLUGINS)))
    ]
    assert places == sorted(places)
    for name, command in PROGRAM.commands.items():
        assert any(line.split() == [name, *command.help.split("\n")[0].split()] for line in lines), name


def test_the_list_of_commands_is_the_same_before_they_are_imported(capsys: Captured) -> None:
    code = "import sys; from deepthink_cli.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", env={**os.environ, "COLUMNS": "80"}
    )
    assert done.stdout == page(capsys, "--help")
    assert "deepthink_cli.cli.command" in done.stderr.split()
    assert not {"deepthink_cli.cli.think", "deepthink_cli.plugins.chat.command"} & set(done.stderr.split())


def test_a_command_with_many_options_names_about_ten_that_come_first() -> None:
    for name, options in OPTIONS.items():
        assert bool(first(name)) == (len(options) > MAX_OPTIONS), name
        assert len(first(name)) <= MAX_OPTIONS


def test_no_command_has_many_more_options_than_a_run() -> None:
    assert len(OPTIONS["run"]) <= 40
    assert max(map(len, OPTIONS.values())) <= 44


@pytest.mark.parametrize("command", sorted(OPTIONS.keys() - {"harness"}))
def test_help_all_shows_every_option_and_help_says_how_many_more_there_are(command: str, capsys: Captured) -> None:
    whole, short = (page(capsys, *command.split(), flag) for flag in ("--help-all", "--help"))
    assert listed(whole) == OPTIONS[command]
    assert "more options" not in whole
    if first(command):
        assert len(listed(short)) == len(first(command))
        left_out = len(OPTIONS[command]) - len(listed(short))
        assert f"{left_out} more options: deepthink {command} --help-all" in short.splitlines()[-1]
    else:
        assert listed(short) == OPTIONS[command]
        assert "--help-all" not in short


@pytest.mark.parametrize("command", sorted(OPTIONS))
def test_the_help_of_a_command_fits_a_terminal(command: str, capsys: Captured) -> None:
    lines = page(capsys, *command.split(), "--help").splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80


def test_only_help_all_says_where_an_option_has_no_meaning(capsys: Captured) -> None:
    condition = "Only with --task NAME."
    short, whole = (" ".join(page(capsys, "think", flag).split()) for flag in ("--help", "--help-all"))
    assert condition in whole
    assert condition not in short


def test_every_object_has_a_summary_and_a_source(capsys: Captured) -> None:
    rows = json_of(capsys, "list", "--json")
    assert {row["kind"] for row in rows} == set(REGISTRIES)
    assert [row for row in rows if not (row["summary"] and row["source"])] == []


def test_one_kind_is_listed_by_the_names_of_its_option(capsys: Captured) -> None:
    names = [line.split()[0] for line in output(capsys, "list", "techniques").splitlines()]
    assert names == ["deep-thinking", "composed", "ct-kv", "ensemble-N", "flipped", "fresh", "repeat-R"]


def test_without_a_kind_every_kind_is_followed_by_its_names_within_the_width_of_a_screen(capsys: Captured) -> None:
    lines = output(capsys, "list").splitlines()
    assert "steps         score, nearest, reread, truncate" in lines
    assert max(map(len, lines)) <= 80


def test_an_unknown_kind_is_answered_with_the_known_ones(capsys: Captured) -> None:
    assert run(["list", "rules"]) == 2
    assert capsys.readouterr().err.startswith("deepthink: rules: not a kind; use updates, techniques, ")


LINES = {
    "deepthink calib": ["calibrate"],
    "deepthink think --format j": ["jsonl", "json"],
    "deepthink think --mom": ["--momentum"],
    "deepthink think --help-": ["--help-all"],
}
COMPLETING = """
import os, sys
from deepthink_cli.cli.main import program, run
program()
for line in sys.argv[1:]:
    if not os.fork():
        os.environ.update(COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
        run([])
        sys.exit(" ".join(name.split(".")[0] for name in sys.modules))
    os.wait()
    print(end="\\0", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs each line in a copy of one process")
def test_words_are_completed_without_torch(tmp_path: Path) -> None:
    package = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}
    environment = os.environ | package | {"_DEEPTHINK_COMPLETE": "complete_bash"}
    program = [sys.executable, "-c", COMPLETING, *LINES]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    offered = [words.split() for words in done.stdout.split("\0")[: len(LINES)]]
    assert dict(zip(LINES, offered, strict=True)) == LINES
    assert not set(done.stderr.split()) & (HEAVY | {"numpy"})
