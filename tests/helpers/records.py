"""Records of `benchmarks/`, as their scripts write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def recorded(path: Path) -> list[dict[str, Any]]:
    """The rows of a record by their columns."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
