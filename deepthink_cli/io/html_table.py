"""Tables as plain HTML without scripts, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from deepthink_cli.io.text import LONGEST, printable

MOST = 500  # characters of a named value


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """One `<table>` with every text escaped; the first column is aligned to the left, the others to the right."""
    lines = ["<table>"]
    if caption:
        lines.append(f'<caption style="text-align: left">{_text(caption)}</caption>')
    lines += ["<thead>", _row("th", columns), "</thead>", "<tbody>", *(_row("td", row) for row in rows), "</tbody>"]
    return "\n".join([*lines, "</table>"])


def html_paragraphs(lines: Sequence[str]) -> str:
    """A `<p>` for each line, with every text escaped."""
    return "\n".join(f"<p>{_text(line)}</p>" for line in lines)


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """A `<table>` of named values with every text escaped; the middle of a long value is omitted."""
    left = 'style="text-align: left"'
    rows = (
        f"<tr><th {left}>{_text(name)}</th><td {left}>{_text(value, MOST)}</td></tr>" for name, value in facts.items()
    )
    return f"<table><caption>{_text(title)}</caption><tbody>{''.join(rows)}</tbody></table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    sides = ["left", *("right" for _ in cells[1:])]
    written = [
        f'<{tag} style="text-align: {side}">{_text(cell)}</{tag}>' for side, cell in zip(sides, cells, strict=True)
    ]
    return f"<tr>{''.join(written)}</tr>"


def _text(text: str, most: int = LONGEST) -> str:
    return escape(printable(text, most))
