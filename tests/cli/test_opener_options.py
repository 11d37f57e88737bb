"""Options of files that are not memories: none has the name of an option that predict or eval has."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import pytest

from deepthink_cli.cli.evaluate import evaluate
from deepthink_cli.cli.opener_options import TAKEN, OpenerOptions
from deepthink_cli.cli.predict import predict


@pytest.mark.parametrize("command", [predict, evaluate])
def test_names_of_the_commands_own_options_are_taken(command: Callable[..., None]) -> None:
    assert set(signature(command).parameters) - {"context", *OpenerOptions.model_fields} <= TAKEN
