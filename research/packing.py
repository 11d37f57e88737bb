"""Folders of runs as Parquet tables: `continued.parquet` holds the files of the folder `continued/` beside it.

    python -m research.packing unpack research/tables/evidence/continued research/tables/evidence/official
    python -m research.packing pack research/tables/evidence/continued

Tables are committed; their folders are ignored by git. A row of a table is one line of a `.jsonl` file or one row of a
`.parquet` file: `file` names it, `line` is the line without its line break, and the other columns are those of the
Parquet files, as `encoding.py` stores them. Rows are in the order of the names of their files, and in a file in its own
order, so that the same rows give the same bytes. The texts of inputs are in `texts.parquet`, once for all tables of a
folder. Other files, such as locks, are left out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deepthink_cli.io.atomic import replacing

from .encoding import TEXT, WHERE, alike, decoded, encoded

TABLES = Path(__file__).parent / "tables"
FILE, LINE, TEXTS = "file", "line", "texts.parquet"


def table_of(folder: Path) -> Path:
    """The table of a folder: beside it, with its name."""
    return folder.with_name(f"{folder.name}.parquet")


def pack(folder: Path) -> None:
    """Write the table of a folder, unless it holds the same rows already; an incomplete last line is left out.

    Raises SystemExit if the table has rows that the folder lacks, or if a file cannot be recovered from a table.
    """
    target, files = table_of(folder), _read_folder(folder)
    known = _read(target) if target.exists() else None
    texts = _with_texts(target.with_name(TEXTS), files)
    stored = {name: encoded(part) for name, part in files.items()}
    named = [part.add_column(0, FILE, pa.array([name] * len(part), pa.string())) for name, part in stored.items()]
    rows = pa.concat_tables(named, promote_options="default") if named else pa.table({FILE: pa.array([], pa.string())})
    for name, part in _files(rows):
        if not alike(files[name], decoded(part, texts)):
            raise SystemExit(f"{folder / name}: would lose columns or types in {target}")
    if known is not None:
        for name, part in _files(known):
            if name not in stored or not stored[name].slice(0, len(part)).equals(part):
                raise SystemExit(f"{target} has rows of {name} that {folder} lacks: move one of the two away")
        if known.equals(rows):
            return
    if texts:
        _write(pa.table({WHERE: list(texts), TEXT: list(texts.values())}), target.with_name(TEXTS))
    _write(rows, target)


def unpack(folder: Path, table: Path | None = None) -> None:
    """Write the files of a folder that does not exist yet from a table: its own if none is given.

    Lines keep their bytes, and Parquet files their rows and types; scores are log-probabilities over the candidates.
    Raises SystemExit if the folder exists.
    """
    if folder.exists():
        raise SystemExit(f"{folder}: is there already; move it away to unpack its table again")
    table = table or table_of(folder)
    rows, texts = _read(table), _texts(table.with_name(TEXTS))
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        for name, part in _files(rows):
            path = Path(place, folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".jsonl":
                path.write_bytes("".join(f"{line}\n" for line in part[LINE].to_pylist()).encode())
            else:
                pq.write_table(decoded(part, texts), path, compression="zstd", write_page_checksum=True)
        Path(place, folder.name).rename(folder)


@contextmanager
def continued(folders: Collection[Path]) -> Iterator[None]:
    """Unpack folders for runs that continue in them, and pack them when the block ends, however it ends.

    A folder that is there already, of a run that was killed, is continued as it is.
    """
    for folder in folders:
        if folder.is_dir():
            pack(folder)
        elif table_of(folder).exists():
            unpack(folder)
    try:
        yield
    finally:
        for folder in folders:
            if folder.is_dir():
                pack(folder)


@contextmanager
def unpacked(tables: Path, names: Collection[str] | None = None) -> Iterator[Path]:
    """A temporary folder with the folders of all tables in a folder, or of those with these names."""
    with tempfile.TemporaryDirectory() as place:
        for table in sorted(tables.glob("*.parquet")):
            if table.name != TEXTS and (names is None or table.stem in names):
                unpack(Path(place) / table.stem, table)
        yield Path(place)


def _read_folder(folder: Path) -> dict[str, pa.Table]:
    """The files of a folder that have rows, in the order of their names; hidden ones are being written."""
    files = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.suffix in (".jsonl", ".parquet") and not any(part.startswith(".") for part in name.parts):
            files[name.as_posix()] = _read(path) if path.suffix == ".parquet" else _read_lines(path)
    return {name: files[name] for name in sorted(files) if len(files[name])}


def _read_lines(path: Path) -> pa.Table:
    with open(path, "rb") as lines:
        return pa.table({LINE: pa.array([line[:-1].decode() for line in lines if line.endswith(b"\n")], pa.string())})


def _read(path: Path) -> pa.Table:
    return pq.read_table(path, page_checksum_verification=True)


def _files(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The names of the files in a table, and their rows in the columns that they have."""
    start = 0
    for name, same in groupby(rows[FILE].to_pylist()):
        part = rows.slice(start, len(list(same)))
        start += len(part)
        yield name, part.select([each for each in part.column_names[1:] if part[each].null_count < len(part)])


def _texts(path: Path) -> dict[str, str]:
    """The texts of inputs by their places, as in `data/sst2/validation.jsonl:7`."""
    rows = _read(path) if path.exists() else pa.table({WHERE: [], TEXT: []})
    return dict(zip(rows[WHERE].to_pylist(), rows[TEXT].to_pylist(), strict=True))


def _with_texts(path: Path, files: dict[str, pa.Table]) -> dict[str, str]:
    """The known texts of inputs, and those of files that have them, in the order of their places."""
    texts = _texts(path)
    for part in files.values():
        if part.column_names == [WHERE, TEXT]:
            texts |= zip(part[WHERE].to_pylist(), part[TEXT].to_pylist(), strict=True)
    return dict(sorted(texts.items()))


def _write(rows: pa.Table, path: Path) -> None:
    """Write a table as small as it gets: numbers split into bytes, words in dictionaries, one page a column."""
    leaves = [
        (f"{field.name}.list.element", field.type.value_type)
        if pa.types.is_list(field.type)
        else (field.name, field.type)
        for field in rows.schema
    ]
    words = [name for name, kind in leaves if pa.types.is_string(kind)]
    with replacing(path) as temporary:
        pq.write_table(
            rows,
            temporary,
            use_byte_stream_split=[name for name, _ in leaves if name not in words],
            use_dictionary=[name for name in words if name not in (LINE, WHERE, TEXT)],
            compression="brotli",
            compression_level=11,
            data_page_size=1 << 30,
            write_page_checksum=True,
        )


def main() -> None:
    """Parse the arguments, and pack or unpack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("pack", "unpack"))
    parser.add_argument("folders", nargs="+", type=Path, help="folders, whose tables are beside them")
    args = parser.parse_args()
    for folder in args.folders:
        pack(folder) if args.action == "pack" else unpack(folder)


if __name__ == "__main__":
    main()
