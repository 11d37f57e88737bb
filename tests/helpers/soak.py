"""Parameters of which the suite tries some, and `make soak` all."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest


def with_soak(every: Iterable[object], suite: Collection[object]) -> list[object]:
    """The parameters of a test: those in `suite` are always tried, the others with --soak."""
    given = list(every)
    assert all(each in given for each in suite)
    return [each if each in suite else _only_in_soak(each) for each in given]


def _only_in_soak(value: object) -> object:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.soak)
