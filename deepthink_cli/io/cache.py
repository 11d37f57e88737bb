"""Small files in the user's cache folder. One that cannot be read or written only costs time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.atomic import replacing


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/deepthink`, by default `~/.cache/deepthink`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "deepthink"


def read_cached(name: str) -> str | None:
    """The text of a file in the cache folder; None without such a file."""
    with suppress(OSError, ValueError):
        return (cache_folder() / name).read_text(encoding="ascii")
    return None


def write_cached(name: str, text: str) -> None:
    """Write a file in the cache folder, atomically, if that is possible."""
    path = cache_folder() / name
    with suppress(OSError, DeepThinkError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="ascii")
