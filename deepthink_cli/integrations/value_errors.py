"""Errors of the package as the ValueErrors that scikit-learn expects, in the words of an estimator's user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deepthink_cli.errors import InputError

OPTION = re.compile(r"(?<!\S)(?:--([a-z-]+)|-m)(?!\S)")
PARAMETERS = {"sampling": "demos_by", "method": "demos_by"}  # parameters that are called otherwise than the option


class InvalidValue(InputError, ValueError):
    """An `InputError` that is a `ValueError`."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise an `InputError` as a ValueError, with the names of parameters in place of those of options."""
    try:
        yield
    except InputError as error:
        raise InvalidValue(*map(of_parameters, error.messages)) from error


def of_parameters(message: str) -> str:
    """A message with the names of parameters in place of those of options."""
    return OPTION.sub(_parameter, message)


def _parameter(option: re.Match[str]) -> str:
    name = option[1] or "model"
    return PARAMETERS.get(name, name.replace("-", "_"))
