"""Lines of text files, and rows that are lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import IO, AnyStr, BinaryIO

from deepthink_cli.data.source import Row, RowSource, check_path, opened
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

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
