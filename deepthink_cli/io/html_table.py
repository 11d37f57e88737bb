"""A table as plain HTML without scripts, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from deepthink_cli.io.text import printable


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


def _row(tag: str, cells: Sequence[str]) -> str:
    sides = ["left", *("right" for _ in cells[1:])]
    written = [
        f'<{tag} style="text-align: {side}">{_text(cell)}</{tag}>' for side, cell in zip(sides, cells, strict=True)
    ]
    return f"<tr>{''.join(written)}</tr>"


def _text(text: str) -> str:
    return escape(printable(text))
