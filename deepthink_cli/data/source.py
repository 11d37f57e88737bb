"""Sources of rows, and the row that each of them gives."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from deepthink_cli.errors import InputError, option


@dataclass(frozen=True)
class Row:
    """One row: its fields in the file's order, and its file and line (`demos.jsonl:3`)."""

    fields: dict[str, Any]
    where: str


STDIN = "-"
FormatName = Literal["csv", "tsv", "jsonl", "json", "parquet", "txt"]
Compression = Literal["gzip", "zstd"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)
SUFFIXES: dict[str, FormatName] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "txt",
    "": "jsonl",
}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
_OTHER_COMPRESSIONS = (".bz2", ".xz", ".lz4", ".zip", ".7z")


@dataclass(frozen=True)
class RowSource:
    """A path, or `-` for standard input, and the format of its rows if the suffix does not say it.

    `convert` returns a row in other columns as a row with the template's fields; its second argument says whether the
    row must have its true label. Raises InputError for a format that is not in `FORMATS`.
    """

    path: str
    format: FormatName | None = None
    convert: Callable[[Row, bool], Row] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise InputError.of("format", self.format, f"unknown format; use {', '.join(FORMATS)}")

    @classmethod
    def of(cls, source: str | Path | RowSource) -> RowSource:
        """The source itself, or a path whose suffix says the format."""
        return source if isinstance(source, RowSource) else cls(str(source))

    def converted(self, row: Row, labelled: bool = True) -> Row:
        """The row with the template's fields; raises InputError if `convert` cannot read it."""
        return row if self.convert is None else self.convert(row, labelled)

    @property
    def is_stdin(self) -> bool:
        """Whether the rows come from standard input."""
        return self.path == STDIN

    @property
    def read_once(self) -> bool:
        """Whether the rows can be read only once: those of standard input, of a pipe and of a device."""
        if self.is_stdin:
            return True
        try:
            mode = os.stat(self.path).st_mode
        except (OSError, ValueError):  # reading says what is wrong with the path
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    @property
    def name(self) -> str:
        """The name of the source in messages."""
        return "standard input" if self.is_stdin else self.path

    @property
    def compression(self) -> Compression | None:
        """The compression that the suffix names; None for standard input."""
        return None if self.is_stdin else _COMPRESSIONS.get(Path(self.path).suffix.lower())

    @property
    def row_format(self) -> FormatName:
        """The format that was named or that the suffix says, before that of the compression; else JSON Lines.

        Raises InputError for an unknown suffix.
        """
        if self.format is not None or self.is_stdin:
            return self.format or "jsonl"
        path = Path(self.path)
        suffix = (Path(path.stem) if self.compression else path).suffix.lower()
        if suffix in _OTHER_COMPRESSIONS:
            raise InputError(f"{self.path}: {suffix} files are not read; decompress it, or use .gz or .zst")
        if suffix not in SUFFIXES:
            known = ", ".join(filter(None, SUFFIXES))
            raise InputError(
                f"{self.path}: unknown format {suffix!r}; use {known}, or name the format with {option('format')}"
            )
        return SUFFIXES[suffix]

    @property
    def guessed(self) -> bool:
        """Whether neither an option nor a suffix says the format, so that JSON Lines are assumed."""
        return self.format is None and (self.is_stdin or not Path(self.path).suffix)
