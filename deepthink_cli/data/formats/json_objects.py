"""A row from the text of one JSON object."""

from __future__ import annotations

import json
import math
from typing import Any

from deepthink_cli.data.formats.lines import shortened
from deepthink_cli.errors import InputError


def parsed_object(text: str, where: str, advice: str) -> dict[str, Any]:
    """The fields of a JSON object; raises InputError, ending with `advice`, for a text that is not JSON.

    Also raises InputError for other JSON values, numbers that are not finite, duplicate fields and lone surrogates.
    """

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise InputError(f"{where}: {number} is not a finite number; use a number or a string")
        return value

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            names = [name for name, _ in pairs]
            duplicate = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{where}: field {duplicate!r} is duplicated; keep one")
        return fields

    try:
        value = json.loads(text, parse_constant=finite, parse_float=finite, object_pairs_hook=unique)
    except (json.JSONDecodeError, RecursionError) as error:
        raise not_json(error, text, where, advice) from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise InputError(f"{where}: a number is too long: {shortened(text)}") from error
    if not isinstance(value, dict):
        raise InputError(
            f'{where}: not an object: {shortened(text)}; write rows like {{"text": "...", "label": "..."}}'
        )
    if "\\u" in text:
        _refuse_lone_surrogates(value, where)
    return value


def not_json(error: json.JSONDecodeError | RecursionError, text: str, where: str, advice: str) -> InputError:
    """The error for a text that Python's decoder refused."""
    reason = error.msg.removesuffix(" at") if isinstance(error, json.JSONDecodeError) else "nested too deeply"
    return InputError(f"{where}: not JSON ({reason}): {shortened(text)}; {advice}")


def _refuse_lone_surrogates(fields: dict[str, Any], where: str) -> None:
    for name, value in fields.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            surrogate = ascii(error.object[error.start])
            raise InputError(f"{where}: {name!r} holds the lone surrogate {surrogate}; remove it") from error
