"""A table for notebooks, with all text escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from deepthink_cli.io.text import printable

MOST = 500  # characters of a value


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """A table of named values; the middle of a long value is omitted."""
    rows = "".join(
        f'<tr><th style="text-align: left">{_shown(name)}</th><td style="text-align: left">{_shown(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table><caption>{_shown(title)}</caption><tbody>{rows}</tbody></table>"


def _shown(text: str) -> str:
    return escape(printable(text, MOST))
