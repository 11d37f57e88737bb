"""Independent mistakes are reported together, each as data: the option, its value, the place and the reason."""

from __future__ import annotations

import pickle

import pytest

from deepthink_cli.cli.names import flag
from deepthink_cli.errors import InputError, Problem, Problems, naming_options, option, parameter


def refuse() -> str:
    raise InputError.of("eta", 2, "too large")


def test_mistakes_are_collected_and_raised_together() -> None:
    problems = Problems()
    with problems.collected():
        refuse()
    problems.add("a row is missing")
    with pytest.raises(InputError, match="eta 2: too large\na row is missing"):
        problems.raise_any()


def test_another_error_is_not_collected() -> None:
    with pytest.raises(ZeroDivisionError), Problems().collected():
        _ = 1 // 0


def test_an_option_is_written_as_whoever_shows_the_problem_writes_options() -> None:
    problem = Problem.of("batch_tokens", 0, "too few")
    assert str(problem) == "batch_tokens 0: too few"
    with naming_options(flag):
        assert str(problem) == "--batch-tokens 0: too few"
        assert (option("model"), option("iterations"), option("output")) == ("-m", "-T", "-o")
        with naming_options(parameter):
            assert option("eta") == "eta"
    assert option("model") == "model"


def test_a_place_stands_before_the_option() -> None:
    assert str(Problem("too large", "eta", "2", place="options.toml:3")) == "options.toml:3: eta 2: too large"


def test_an_error_survives_the_way_from_a_worker() -> None:
    error = InputError(Problem.of("eta", 2, "too large"), "another")
    assert pickle.loads(pickle.dumps(error)).problems == error.problems
