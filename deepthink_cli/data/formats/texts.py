"""Plain text: one text a line."""

from __future__ import annotations

from collections.abc import Iterator

from deepthink_cli.data.formats.lines import decoded, numbered_lines
from deepthink_cli.data.opening import check_path, opened
from deepthink_cli.data.row import Row
from deepthink_cli.data.source import RowSource
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

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
