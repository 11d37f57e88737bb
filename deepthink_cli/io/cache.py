"""Results in the user's cache folder: texts by name, and arrays by a digest of all that they depend on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import DeepThinkError, Problem
from deepthink_cli.io.atomic import refusals, replacing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/deepthink`, by default `~/.cache/deepthink`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "deepthink"


def read_cached(name: str) -> str | None:
    """The text of a file in the cache folder; None without such a file, or if it cannot be read."""
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


class Store:
    """A folder of arrays in safetensors files, named by digests of all that they depend on; by default the cache."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()

    def get(self, key: str) -> Arrays | None:
        """The arrays of a key; None if they are missing or cannot be read."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = self._path(key)
        try:
            return load_file(path) if path.is_file() else None
        except (SafetensorError, OSError):  # damaged or not readable: computed again
            return None

    def put(self, key: str, arrays: Arrays) -> None:
        """Write the arrays of a key, atomically; raises DeepThinkError if that fails."""
        from safetensors.numpy import save_file

        path = self._path(key)
        with refusals(Problem(place=str(self.folder)), "; name another directory in XDG_CACHE_HOME"):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            save_file(dict(arrays), temporary)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"
