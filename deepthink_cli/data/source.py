"""Sources of rows, their rows, and their bytes, decompressed if need be."""

from __future__ import annotations

import codecs
import glob
import io
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, get_args

from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.events import Tell, silent
from deepthink_cli.io.text import file_meant, size

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@dataclass(frozen=True)
class Row:
    """One row: its fields in the file's order, and its file and line (`demos.jsonl:3`).

    `classes` are the names of the classes that the file numbers from 0, by field.
    """

    fields: dict[str, Any]
    where: str
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)


STDIN = "-"
Compression = Literal["gzip", "zstd"]
COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
FormatName = Literal["csv", "tsv", "jsonl", "json", "parquet", "txt"]
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
PARQUET = ".parquet"  # the suffix of files that are read together
_OTHER_COMPRESSIONS = (".bz2", ".xz", ".lz4", ".zip", ".7z")


@dataclass(frozen=True)
class RowSource:
    """A path, or `-` for standard input, and the format of its rows if the suffix does not say it.

    A folder, or a pattern as in `data/part-*.parquet`, stands for the rows of its Parquet files, in order of names.
    `renamed` maps columns to fields, `words` maps values of labels to words. `header` and `quotes` are for CSV and TSV:
    whether the first row names the columns, and whether quotation marks enclose cells. With
    `is_text`, the path is itself the only text. `convert` returns a row in other columns as a row with the template's
    fields; its second argument says whether the row must have its true label. `tell` is told of differences between
    the rows and the file. Raises InputError for a format that is not in `FORMATS`.
    """

    path: str
    format: FormatName | None = None
    convert: Callable[[Row, bool], Row] | None = field(default=None, compare=False)
    renamed: tuple[tuple[str, str], ...] = ()
    is_text: bool = False
    header: bool = True
    quotes: bool = True
    words: tuple[tuple[str, str], ...] = ()
    tell: Tell = field(default=silent, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise InputError.of("format", self.format, f"unknown format; use {', '.join(FORMATS)}")

    @classmethod
    def of(cls, source: str | Path | RowSource) -> RowSource:
        """The source itself, or a path whose suffix says the format."""
        return source if isinstance(source, RowSource) else cls(str(source))

    def converted(self, row: Row, labelled: bool = True) -> Row:
        """The row with the template's fields; raises InputError if `convert` cannot read it."""
        if self.renamed:
            names = dict(self.renamed)
            others = {name: value for name, value in row.fields.items() if name not in names}
            fields = {**others, **{names[name]: row.fields[name] for name in names if name in row.fields}}
            row = Row(fields, row.where, {names.get(name, name): of_name for name, of_name in row.classes.items()})
        return row if self.convert is None else self.convert(row, labelled)

    @property
    def is_stdin(self) -> bool:
        """Whether the rows come from standard input."""
        return self.path == STDIN

    @property
    def read_once(self) -> bool:
        """Whether the rows can be read only once: standard input, a pipe or a device."""
        if self.is_stdin or self.is_text:
            return self.is_stdin
        try:
            mode = os.stat(self.path).st_mode
        except (OSError, ValueError):  # the mistake in the path is reported when it is read
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    @property
    def parts(self) -> list[str]:
        """The Parquet files of a folder, or the files that a pattern names, in order; none for one file."""
        if self.is_stdin or self.is_text:
            return []
        if os.path.isdir(self.path):
            return sorted(glob.glob(os.path.join(glob.escape(self.path), f"*{PARQUET}")))
        if os.path.exists(self.path) or not glob.has_magic(self.path):
            return []
        return sorted(glob.glob(self.path, recursive=True))

    @property
    def name(self) -> str:
        """The name of the source in messages."""
        return "standard input" if self.is_stdin else "the text" if self.is_text else self.path

    @property
    def compression(self) -> Compression | None:
        """The compression that the suffix names; None for standard input."""
        return None if self.is_stdin else COMPRESSIONS.get(Path(self.path).suffix.lower())

    @property
    def row_format(self) -> FormatName:
        """The named format, or the format of the suffix (before the suffix of a compression); else JSON Lines.

        Raises InputError for an unknown suffix, and for several files of another format than Parquet.
        """
        if self.parts:
            if self.format not in (None, "parquet"):
                raise InputError.of("format", self.format, f"{self.path} is read as Parquet files; omit it")
            return "parquet"
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
    def has_header(self) -> bool:
        """Whether the first row names the columns."""
        return self.header and self.row_format in ("csv", "tsv")


_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_OTHERS = {
    b"PAR1": f"a Parquet file; use the suffix .parquet or {option('format')} parquet",
    b"ARRO": "an Arrow file; save it as Parquet",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet; save it as CSV",
}
_IN_MEMORY = 2**26  # bytes of a spooled stream in memory
# A compressed file may hold so many bytes, and so many times its size besides; gzip never compresses by more.
_MAX_BYTES, _MAX_RATIO = 2**26, 2_000


@contextmanager
def opened(source: RowSource) -> Iterator[io.BufferedReader[Any]]:
    """The bytes of a source; compressed data are recognised by the suffix or by their first bytes.

    Raises InputError for a file that cannot be opened or begins like another kind of file, and, while reading, for
    damaged compressed data.
    """
    # Not sys.stdin: at exit Python would wait for a thread that still reads from it.
    check_path(source)
    path = sys.stdin.fileno() if source.is_stdin else source.path
    with open(path, "rb", closefd=not source.is_stdin) as stream:
        start = stream.peek(4)[:4]
        kind = source.compression or next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
        content: io.BufferedReader[Any] = (
            stream if kind is None else io.BufferedReader(_Decompressed(stream, kind, source.name))
        )
        other = _OTHERS.get(content.peek(4)[:4])
        if other is not None and source.row_format != "parquet":
            raise InputError(f"{source.name}: {other}")
        if content.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and source.row_format != "parquet":
            raise InputError(f"{source.name}: not UTF-8, but UTF-16 or UTF-32; save the file as UTF-8")
        yield content


@contextmanager
def seekable(source: RowSource) -> Iterator[BinaryIO]:
    """The bytes of a source for random access; compressed or piped data are copied to a temporary file."""
    with opened(source) as stream:
        if stream.seekable():
            yield stream
            return
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as copy:
            try:
                copyfileobj(stream, copy)
            except OSError as error:
                told = f"cannot be copied to {tempfile.gettempdir()} ({error.strerror})"
                raise DeepThinkError(f"{source.name}: {told}; free space there, or set TMPDIR") from error
            copy.seek(0)
            yield copy  # type: ignore[misc]


def check_path(source: RowSource) -> None:
    """Raise InputError for a file that is missing or not readable, and for a folder without Parquet files."""
    path = source.path
    if source.is_stdin or source.is_text:
        return
    parts = source.parts
    if not parts and not os.path.exists(path):
        raise InputError(f"{path}: no such file; {file_meant(path, 'check the path, or use - for standard input')}")
    if not parts and os.path.isdir(path):
        raise InputError(f"{path}: has no {PARQUET} files; name a .jsonl, .csv or .tsv file in it")
    for part in parts:
        if not part.endswith(PARQUET) or not os.path.isfile(part):
            raise InputError(f"{part}: not a {PARQUET} file; only files of Parquet are read together")
    for file in parts or [path]:
        if not os.access(file, os.R_OK):
            raise InputError(f"{file}: cannot be read: permission denied")


class _Decompressed(io.RawIOBase):
    """The decompressed bytes of a stream; raises InputError for data that are damaged or end too early.

    Also raises InputError for far more bytes than a file of this size can hold. A pipe's size is not known.
    """

    def __init__(self, stream: io.BufferedReader, kind: Compression, name: str) -> None:
        import pyarrow

        self.kind, self.name, self.count = kind, name, 0
        status = os.fstat(stream.fileno())
        self.most = _MAX_BYTES + _MAX_RATIO * status.st_size if stat.S_ISREG(status.st_mode) else None
        self.content = pyarrow.CompressedInputStream(stream, kind)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        try:
            data = self.content.read(len(view))
        except OSError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{self.name}: damaged {self.kind} data ({reason}); copy or compress it again") from error
        self.count += len(data)
        if self.most is not None and self.count > self.most:
            raise InputError(
                f"{self.name}: over {size(self.most)} of {self.kind} data from so small a file; decompress it first"
            )
        view[: len(data)] = data
        return len(data)
