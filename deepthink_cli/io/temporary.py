"""Temporary folders, which are removed however the process ends, unless it is killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

Remove = Callable[[Path], None]
_held: dict[Path, Remove] = {}


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_folder(
    beside: str | Path | None = None, prefix: str = "deepthink-", remove: Remove = _remove
) -> Iterator[Path]:
    """A new folder in `beside`, by default in the system's folder for temporary files; `remove` removes it."""
    folder = Path(os.path.abspath(beside or tempfile.gettempdir()), f"{prefix}{token_hex(8)}")
    _held[folder] = remove  # before it is made: a signal may come between any two steps
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        remove(folder)
        del _held[folder]


def remove_temporary_folders() -> None:
    """Remove the folders of all threads, for a process that ends at once."""
    for folder, remove in list(_held.items()):
        remove(folder)
