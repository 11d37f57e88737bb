"""The objects of one JSON array, read in parts: a file of any size takes little memory."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

from deepthink_cli.data.formats.json_objects import not_json, parsed_object
from deepthink_cli.data.formats.lines import check_decoded, check_length, shortened
from deepthink_cli.data.row import Row
from deepthink_cli.errors import InputError

_PART = 2**16  # characters that are read at a time
_ADVICE = "write an array of objects, or one object a line"
_BLANKS = re.compile(r"[ \t\r\n]*")
# Finds where a value ends; its numbers are checked when the row is parsed.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def array_rows(stream: io.BufferedReader, name: str, line: int) -> Iterator[Row | InputError]:
    """The rows of an array whose bracket is the next byte of `stream`, at `line`.

    Raises InputError, with the line, where the array is no longer JSON or ends too early.
    """
    document = _Document(io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline=""), name, line)
    document.take(1)
    closing = document.next() == "]"
    while not closing:
        where = document.where
        text = document.value()
        try:
            yield Row(parsed_object(text, where, _ADVICE), where)
        except InputError as error:
            yield error
        closing = document.next() == "]"
        if not closing:
            document.expect(",", "a comma or ]")
            document.next()
    document.expect("]", "]")
    if document.next():
        raise InputError(f"{document.where}: not JSON (text after the array); {_ADVICE}")


class _Document:
    """The text of a file, of which only the part that is being decoded is kept."""

    def __init__(self, text: io.TextIOWrapper, name: str, line: int) -> None:
        self.text, self.name, self.line = text, name, line
        self.part, self.place = "", 0
        self.more()

    @property
    def where(self) -> str:
        return f"{self.name}:{self.line}"

    def more(self) -> bool:
        """Read as much again as is kept; False at the end of the file."""
        kept = self.part[self.place :]
        added = self.text.read(max(_PART, len(kept)))
        self.part, self.place = kept + added, 0
        return bool(added)

    def take(self, length: int) -> str:
        taken = self.part[self.place : self.place + length]
        self.place += length
        self.line += taken.count("\n")
        return taken

    def next(self) -> str:
        """The next character that is not blank; empty at the end of the file."""
        while True:
            blanks = _BLANKS.match(self.part, self.place)
            self.take(blanks.end() - self.place if blanks else 0)
            if self.place < len(self.part) or not self.more():
                return self.part[self.place : self.place + 1]

    def expect(self, character: str, description: str) -> None:
        """Take a character; raises InputError if there is another one, or none."""
        if self.next() != character:
            rest = shortened(self.part[self.place : self.place + 100])
            reason = f"{description} expected: {rest}" if rest else "the array is not closed; is the file complete?"
            raise InputError(f"{self.where}: not JSON ({reason}); {_ADVICE}")
        self.take(1)

    def value(self) -> str:
        """The text of the next value, which is taken."""
        while True:
            try:
                _, end = _decoder.raw_decode(self.part, self.place)
                if end < len(self.part) or not self.more():
                    break
            except (json.JSONDecodeError, RecursionError) as error:
                check_length(len(self.part) - self.place, self.where)
                if isinstance(error, RecursionError) or not self.more():
                    rest = self.part[self.place : self.place + 100]
                    check_decoded(rest, self.where)
                    raise not_json(error, rest, self.where, _ADVICE) from error
        where, text = self.where, self.take(end - self.place)
        check_decoded(text, where)
        return text
