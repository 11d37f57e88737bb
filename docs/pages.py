"""Pages that are made of the program: written, or compared with what they would be."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(pages: Mapping[Path, str]) -> None:
    """Write the pages, or exit with 1 where --check finds another one."""
    for path, text in pages.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.relative_to(ROOT)} is stale; run: python {sys.argv[0]}")
