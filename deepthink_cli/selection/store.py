"""Arrays cached on disk by a digest of all that they depend on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.atomic import replacing
from deepthink_cli.io.cache import cache_folder
from deepthink_cli.io.text import json_sha256
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]


CACHE = "DEEPTHINK_CACHE"  # the variable of the environment that names the folder


def default_folder() -> Path:
    """`$DEEPTHINK_CACHE`, or `$XDG_CACHE_HOME/deepthink`, by default `~/.cache/deepthink`."""
    folder = os.environ.get(CACHE)
    return Path(folder) if folder else cache_folder()


def model_parts(identity: ModelIdentity) -> list[str | None]:
    """The parts of a model's identity that determine results of token ids, for `key_of`, with all bytes of weights."""
    return [identity.config_sha256, identity.weights_sha256, identity.dtype, identity.quantize]


def key_of(*values: Any) -> str:
    """The digest of JSON values, as the name of the results that were computed from them."""
    return json_sha256(list(values))


class Store:
    """A folder of safetensors files, each named by a digest of the data from which its arrays were computed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise DeepThinkError.of(
                "cache", self.folder, f"cannot be written: {reason}; name another directory"
            ) from error
        with replacing(path, "cache") as temporary:
            save_file(dict(arrays), temporary)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"
