"""Independent mistakes are reported together."""

from __future__ import annotations

import pytest

from deepthink_cli.errors import InputError, Problems


def refuse() -> str:
    raise InputError("--eta 2: too large")


def test_a_result_is_the_value_or_its_mistake_is_collected() -> None:
    problems = Problems()
    assert problems.result(lambda: 5) == 5
    assert problems.result(refuse) is None
    with pytest.raises(InputError, match="--eta 2: too large"):
        problems.raise_any()


def test_another_error_is_not_collected() -> None:
    with pytest.raises(ZeroDivisionError):
        Problems().result(lambda: 1 // 0)
