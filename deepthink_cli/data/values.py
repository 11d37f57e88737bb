"""Values of fields as text, and lists of labels."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from deepthink_cli.errors import InputError, Problem

MAX_TEXT = 2**20  # bytes of a text; no model reads so much, and a tokenizer needs a second for it


def text_value(value: Any, where: str, field: str) -> str:
    """A field's value as text: strings stripped, numbers and true/false written as in JSON.

    Raises InputError if it is missing, empty, not finite, a list or object, holds a lone surrogate, or has more
    than `MAX_TEXT` bytes.
    """
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {field!r} is {value}; use a string")
    if isinstance(value, int | float):
        return str(value)
    if value is None:
        raise InputError(f"{where}: {field!r} is empty; fill it or omit the row")
    if not isinstance(value, str):
        raise InputError(f"{where}: {field!r} is a {type(value).__name__}; use a string")
    text = value.strip()
    if not text:
        raise InputError(f"{where}: {field!r} is empty; fill it or omit the row")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        surrogate = ascii(text[error.start])
        raise InputError(f"{where}: {field!r} holds the lone surrogate {surrogate}; remove it") from error
    if size > MAX_TEXT:
        raise InputError(
            f"{where}: {field!r} has {size:,} bytes, at most {MAX_TEXT:,} are read; shorten it or split the row"
        )
    return text


def distinct(values: Sequence[str], where: Problem) -> tuple[str, ...]:
    """The values as a tuple; raises InputError, about `where`, if one is duplicated."""
    for value in values:
        if values.count(value) > 1:
            raise InputError(where.because(f"{value!r} is duplicated; keep one"))
    return tuple(values)
