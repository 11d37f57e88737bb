"""A message names an option of another command only with that command; the check itself, which every test applies."""

from __future__ import annotations

import pytest
from helpers.advice import not_had

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError, option
from deepthink_cli.plugins.memories import diff_command as diff


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("use --calibrate none", ["--calibrate"]),
        ("keep all with deepthink think --keep all, or name another with --at", []),
        ("store another with deepthink calibrate a.safetensors --score mean, or use --score sum", ["--score"]),
        ("keep all with deepthink predict --keep all", ["--keep"]),
        ("compare several with deepthink run --demos-by, --technique or --calibrate", []),
        ("-T 5 or --json", ["-T"]),
        ("a film--quite good", []),
    ],
)
def test_an_option_is_one_of_the_command_or_stands_with_its_own(message: str, wrong: list[str]) -> None:
    assert not_had(f"deepthink: {message}", ["diff", "a"]) == wrong


def test_commands_of_a_group_have_options_of_their_own() -> None:
    assert not_had("run them with deepthink study run --workers 2", ["study", "show"]) == []
    assert not_had("give --workers 2", ["study", "run"]) == []


def test_whatever_a_test_runs_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    def refused(*_: object) -> None:
        raise InputError(f"use {option('calibrate')} none")

    monkeypatch.setattr(diff, "_opened", refused)
    with pytest.raises(AssertionError, match=r"options that deepthink diff a does not have: .*--calibrate"):
        run(["diff", "a"])
