"""What command lines print in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

Captured = pytest.CaptureFixture[str]


def output(capsys: Captured, *words: object) -> str:
    """What a command that succeeds prints to stdout."""
    from deepthink_cli.cli.main import run

    capsys.readouterr()
    assert run([*map(str, words)]) == 0
    return capsys.readouterr().out


def json_of(capsys: Captured, *words: object) -> Any:
    """The value that a command prints as JSON."""
    return json.loads(output(capsys, *words))


def rows_of(capsys: Captured, *words: object) -> list[dict[str, Any]]:
    """The rows that a command prints as JSON Lines."""
    return [json.loads(line) for line in output(capsys, *words).splitlines()]


def refused(capsys: Captured, *words: object, code: int = 2) -> str:
    """The line on stderr of a command that ends with this code, and prints nothing else."""
    from deepthink_cli.cli.main import run

    capsys.readouterr()
    assert run([*map(str, words)]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    return err.removesuffix("\n")
