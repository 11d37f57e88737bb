"""Rows of JSON: objects one after another, or one array of them.

ijson 3.6 names no line, keeps the last of duplicate fields, reads a lone surrogate as `?`, and stops at a number that
is not finite.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepthink_cli.data.formats.lines import decoded, numbered_lines, shortened, whole_text
from deepthink_cli.data.source import FORMATS, Row, RowSource, opened
from deepthink_cli.errors import InputError, option


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
    for name, content in value.items() if "\\u" in text else ():
        try:
            json.dumps([name, content], ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            surrogate = ascii(error.object[error.start])
            raise InputError(f"{where}: {name!r} holds the lone surrogate {surrogate}; remove it") from error
    return value


def not_json(error: json.JSONDecodeError | RecursionError, text: str, where: str, advice: str) -> InputError:
    """The error for a text that Python's decoder refused."""
    reason = error.msg.removesuffix(" at") if isinstance(error, json.JSONDecodeError) else "nested too deeply"
    return InputError(f"{where}: not JSON ({reason}): {shortened(text)}; {advice}")


_ADVICE = "write one object a line, or one array of objects"
_BLANKS = re.compile(r"[ \t\r\n]*")
# Finds the end of a value; numbers are checked when the row is parsed.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def array_rows(text: str, name: str, line: int) -> Iterator[Row | InputError]:
    """The rows of an array whose bracket begins a text, at `line`.

    Raises InputError, with the line, at the first text that is not JSON, and for an array that is not closed.
    """
    breaks = [match.start() for match in re.finditer("\n", text)]

    def where(place: int) -> str:
        return f"{name}:{line + bisect_left(breaks, place)}"

    def after(place: int) -> int:
        blanks = _BLANKS.match(text, place)
        return blanks.end() if blanks else place

    place = after(1)
    more = text[place : place + 1] != "]"
    while more:
        try:
            end = _decoder.raw_decode(text, place)[1]
        except (json.JSONDecodeError, RecursionError) as error:
            raise not_json(error, text[place : place + 100], where(place), _ADVICE) from error
        try:
            yield Row(parsed_object(text[place:end], where(place), _ADVICE), where(place))
        except InputError as error:
            yield error
        place = after(end)
        more = text[place : place + 1] == ","
        place = after(place + 1) if more else place
    if text[place : place + 1] != "]":
        rest = shortened(text[place : place + 100])
        reason = f"a comma or ] expected: {rest}" if rest else "the array is not closed; is the file complete?"
        raise InputError(f"{where(place)}: not JSON ({reason}); {_ADVICE}")
    if after(place + 1) < len(text):
        raise InputError(f"{where(after(place + 1))}: not JSON (text after the array); {_ADVICE}")


def json_rows(source: RowSource) -> Iterator[Row | InputError]:
    """One object a line, or one array of objects, which is in memory as a whole: the first character decides."""
    guessed = source.format is None and (source.is_stdin or not Path(source.path).suffix)
    name_it = f", or name the format with {option('format')} ({', '.join(FORMATS)})" if guessed else ""
    with opened(source) as stream:
        for where, line in (lines := numbered_lines(stream, source.name)):
            if line.lstrip().startswith(b"["):
                number = int(where.rpartition(":")[2])
                yield from array_rows(whole_text(line.lstrip(), stream, source.name, number), source.name, number)
                return
            yield _row(line, where, _ADVICE + name_it)
            break
        yield from (_row(line, where, _ADVICE + name_it) for where, line in lines)


def _row(line: bytes, where: str, advice: str) -> Row | InputError:
    try:
        return Row(parsed_object(decoded(line, where), where, advice), where)
    except InputError as error:
        return error
