"""Lines of text files, and rows that are lines: plain texts, and JSON objects, which may also be one array.

ijson 3.6 names no line, keeps the last of duplicate fields, reads a lone surrogate as `?`, and stops at a number that
is not finite.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO

from deepthink_cli.data.source import FORMATS, Row, RowSource, check_path, opened
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError, option

BOM = b"\xef\xbb\xbf"
# The most bytes or characters of a row, which is in memory as a whole: a small compressed file can hold a line of any
# length.
MAX_ROW = 2**26


def numbered_lines(stream: BinaryIO, name: str) -> Iterator[tuple[str, bytes]]:
    """The place (`file:line`) and the bytes of every line that is not blank.

    Raises InputError for a line of more than `MAX_ROW` bytes.
    """
    # The bytes are split at \n, never with str.splitlines, which also breaks inside a row at U+2028 and U+0085.
    for number, line in enumerate(iter(partial(bounded_line, stream), b""), start=1):
        check_length(len(line), f"{name}:{number}")
        content = line.removeprefix(BOM) if number == 1 else line
        if content.strip():
            yield f"{name}:{number}", content


def whole_text(line: bytes, stream: BinaryIO, name: str, first: int) -> str:
    """A line, number `first`, and the rest of its file; raises InputError for more than `MAX_ROW` bytes."""
    content = line + stream.read(MAX_ROW + 1)
    if len(content) > MAX_ROW:
        raise InputError(f"{name}: an array longer than {MAX_ROW:,} bytes; write one object a line (.jsonl)")
    lines = enumerate(content.split(b"\n"), start=first)
    return "\n".join(decoded(line, f"{name}:{number}") for number, line in lines)


def decoded(line: bytes, where: str) -> str:
    """The text of bytes; raises InputError, naming the first byte that is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf_8(line[error.start], where) from error


def check_decoded(text: str, where: str) -> None:
    """Raise InputError if a text that was decoded with `surrogateescape` has bytes that are not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _not_utf_8(ord(error.object[error.start]) - 0xDC00, where) from error


def shortened(text: str) -> str:
    """The beginning of a text, as one line."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def bounded_line(stream: IO[AnyStr]) -> AnyStr:
    """The next line; a line that is too long is cut to the length that `check_length` refuses."""
    return stream.readline(MAX_ROW + 1)


def check_length(length: int, where: str) -> None:
    """Raise InputError for a row of more than `MAX_ROW` bytes or characters."""
    if length > MAX_ROW:
        raise InputError(f"{where}: a row is longer than {MAX_ROW:,} characters; check its line breaks, or divide it")


def _not_utf_8(byte: int, where: str) -> InputError:
    return InputError(f"{where}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8")


FIELD = "text"


def text_rows(source: RowSource, field: str = FIELD) -> Iterator[Row | InputError]:
    """Every line that is not blank as a row with one field, without spaces at its ends."""
    with opened(source) as stream:
        for where, line in numbered_lines(stream, source.name):
            try:
                yield Row({field: decoded(line, where).strip()}, where)
            except InputError as error:
                yield error


def field_of_texts(source: RowSource, template: Template) -> str:
    """The field that the lines of a plain text fill; raises InputError if the template has several text fields."""
    check_path(source)
    fields = template.text_fields
    if source.row_format == "txt" and len(fields) > 1:
        raise InputError(
            f"{source.name}: a line of a .txt file fills one field, the template has {', '.join(fields)}; "
            "give JSON Lines, CSV or TSV"
        )
    return fields[0]


def refuse_texts(source: RowSource) -> None:
    """Raise InputError for a plain text, where rows need labels."""
    check_path(source)
    if source.row_format == "txt":
        raise InputError(f"{source.name}: a .txt file has texts without labels; give JSON Lines, CSV, TSV or Parquet")


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
