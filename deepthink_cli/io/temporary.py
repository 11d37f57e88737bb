"""Temporary folders, which are removed however the process ends, unless it is killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

_held: set[Path] = set()


@contextmanager
def temporary_folder(beside: str | Path | None = None, prefix: str = "deepthink-") -> Iterator[Path]:
    """A new folder in `beside`, by default in the system's folder for temporary files."""
    folder = Path(os.path.abspath(beside or tempfile.gettempdir()), f"{prefix}{token_hex(8)}")
    _held.add(folder)  # before it is made: a signal may come between any two steps
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _held.remove(folder)


def remove_temporary_folders() -> None:
    """Remove the folders of all threads, for a process that ends at once."""
    for folder in list(_held):
        shutil.rmtree(folder, ignore_errors=True)
