"""Errors of the package as the ValueErrors that scikit-learn expects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from deepthink_cli.errors import InputError, naming_options, parameter

PARAMETERS = {"sampling": "demos_by", "method": "demos_by"}  # parameters that are called otherwise than the option


class InvalidValue(InputError, ValueError):
    """An `InputError` that is a `ValueError`."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise an `InputError` as a ValueError, with the names of an estimator's parameters."""
    try:
        with naming_options(_parameter):
            yield
    except InputError as error:
        problems = (replace(each, field=PARAMETERS.get(each.field or "", each.field)) for each in error.problems)
        raise InvalidValue(*problems) from error


def _parameter(field: str, value: str | None) -> str:
    return parameter(PARAMETERS.get(field, field), value)
