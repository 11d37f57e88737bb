"""A row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One row: its fields in the file's order, and its file and line (`demos.jsonl:3`)."""

    fields: dict[str, Any]
    where: str
