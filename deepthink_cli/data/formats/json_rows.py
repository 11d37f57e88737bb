"""JSON Lines, and JSON documents that are one array of objects or one object a line."""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader

from deepthink_cli.data.formats.json_array import array_rows
from deepthink_cli.data.formats.json_objects import parsed_object
from deepthink_cli.data.formats.lines import BOM, decoded, numbered_lines
from deepthink_cli.data.opening import opened
from deepthink_cli.data.row import Row
from deepthink_cli.data.source import FORMATS, RowSource
from deepthink_cli.errors import InputError

_ONE_A_LINE = "write one object a line"


def json_lines(source: RowSource) -> Iterator[Row | InputError]:
    """One object a line. Raises InputError if the first line begins an array."""
    name_it = f", or name the format with --format ({', '.join(FORMATS)})" if source.guessed else ""
    with opened(source) as stream:
        first = True
        for where, line in numbered_lines(stream, source.name):
            if first and line.lstrip().startswith(b"["):
                raise InputError(f"{where}: begins with [; for a JSON array, use the suffix .json or --format json")
            first = False
            yield _row(line, where, _ONE_A_LINE + name_it)


def json_document(source: RowSource) -> Iterator[Row | InputError]:
    """One array of objects, or one object a line: the first character decides."""
    with opened(source) as stream:
        line, first = _start(stream)
        if first == b"[":
            yield from array_rows(stream, source.name, line)
            return
        for where, content in numbered_lines(stream, source.name, line):
            yield _row(content, where, f"{_ONE_A_LINE}, or one array of objects")


def _row(line: bytes, where: str, advice: str) -> Row | InputError:
    try:
        return Row(parsed_object(decoded(line, where), where, advice), where)
    except InputError as error:
        return error


def _start(stream: BufferedReader) -> tuple[int, bytes]:
    """The line and the first byte of a document, after a byte order mark and blanks, which are taken."""
    if stream.peek(len(BOM)).startswith(BOM):
        stream.read(len(BOM))
    line = 1
    while (first := stream.peek(1)[:1]).isspace():
        line += stream.read(1) == b"\n"
    return line, first
