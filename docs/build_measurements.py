"""Write docs/measurements.md from the records of benchmarks/records/; with --check, only say if it is current."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pages import ROOT, write_or_check

from benchmarks.record import RECORDS, markdown

WIDTH = 125
MOST = 7  # columns of a table
FIRST = ("model", "shape", "task", "dtype", "tokenizer", "rows", "L", "c", "T")  # columns that say what a row is of
LEFT_OUT = ("harness batch", "official batch", "official width")  # they stand in the records
PAGE = ROOT / "docs" / "measurements.md"
START = """\
# Measurements

How fast scoring is beside other programs, and what its parts cost, each with the command that measures it.
[Performance](performance.md) says what follows. Each table is a file in `benchmarks/records/`; a *transcribed* one was
copied from what the program printed. Machines and days differ, so compare figures within a table.

A column with a stroke (`harness / deepthink`) is computed from the two that it names. L are demonstration tokens, c
tokens of a candidate. Loading is not counted, nor the reading, which stands in a column of its own. The systems:

- *harness*: lm-evaluation-harness 0.4.13 with its transformers model, the whole prompt again for every candidate. It
  scored the first *harness inputs* of the inputs, and its time is *scaled by* a factor to all of
  them. It tries batches of 1, 8 and 16, the official way of 8 and 16; the fastest is shown, and the record says which.
- *official*: what the official Deep-Thinking code does, reimplemented from a description: a copy of the memory for
  every row, rows padded to the longest, one row a candidate.
- *padded*: this package with one sequence a row, the path of models that cannot be packed.
- *no-memory*: deepthink on the same tokens with nothing before them; *products*: the matrix products of the tokens
  alone, those with the memory included.
"""


def main() -> None:
    """Write or check the page."""
    records = sorted(RECORDS.glob("*.json"), key=lambda path: path.stem)
    write_or_check({PAGE: page(json.loads(path.read_text(encoding="utf-8")) for path in records)})


def page(records: Iterator[dict[str, Any]]) -> str:
    """The page of these records."""
    return "\n".join([START, *("\n".join(section(record)) for record in records)])


def section(record: dict[str, Any]) -> Iterator[str]:
    """A record's title, note, conditions and table."""
    yield from (f"## {record['title']}", "")
    for text in (record["note"], f"{conditions(record)}."):
        yield from (textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False), "")
    lines = list(markdown(without_empty_columns(record)))
    yield from narrow(lines) if lines[0].count("|") - 1 > MOST else (*lines, "")


def without_empty_columns(record: dict[str, Any]) -> dict[str, Any]:
    """The record without the columns, and the ratios of these, that none of its rows has."""
    names, rows = record["columns"], record["rows"]
    kept = [place for place in range(len(names)) if any(row[place] is not None for row in rows)]
    columns = [names[place] for place in kept]
    ratios = [ratio for ratio in record.get("ratios", []) if set(ratio.split(" / ")) <= {*columns}]
    return record | {"columns": columns, "ratios": ratios, "rows": [[row[place] for place in kept] for row in rows]}


def narrow(lines: Sequence[str]) -> Iterator[str]:
    """A wide table as tables of at most `MOST` columns, which begin alike, after a sentence on columns of one value."""
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    columns = [[*column] for column in zip(*cells, strict=True)]
    columns = [column for column in columns if column[0] not in LEFT_OUT]
    constant = [column for column in columns[1:] if len(lines) > 3 and len({*column[2:]} - {"-"}) == 1]
    if constant:
        named = ", ".join(f"*{name}* {next(each for each in values if each != '-')}" for name, _, *values in constant)
        yield from (textwrap.fill(f"The same in every row: {named}.", WIDTH), "")
    first = [column for column in columns if column[0] in FIRST and column not in constant]
    rest = [column for column in columns if column not in (*first, *constant)]
    count = -(-len(rest) // (MOST - len(first)))
    size = -(-len(rest) // count)
    for start in range(0, len(rest), size):
        yield from (f"| {' | '.join(row)} |" for row in zip(*first, *rest[start : start + size], strict=True))
        yield ""


def conditions(record: dict[str, Any]) -> str:
    """The command, the machine, the date and the commit."""
    parts = [f"`{record['command']}`"] if "command" in record else []
    for name, value in record.get("machine", {}).items():
        if isinstance(value, int):
            parts.append(f"{value} {name.removesuffix('s') if value == 1 else name}")
        else:
            parts.append(value if name in ("processor", "GPU") else f"{name} {value}")
    parts += [record["date"], f"commit {record['commit']}", *["transcribed"] * record.get("transcribed", False)]
    return ", ".join(parts)


if __name__ == "__main__":
    main()
