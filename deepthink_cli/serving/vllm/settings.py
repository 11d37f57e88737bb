"""What a vLLM server is told of the memories that it serves; known without vLLM and without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, with_config

from deepthink_cli.artifact.format import Header, provenance_of, read_header
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.io.mistakes import place, reason
from deepthink_cli.provenance import STRICT

TESTED = ((0, 32), (0, 33))  # vLLM's versions: the first one, and the one before which they end
SALT = "deepthink:"  # with which the cache salt of every memory begins
_CONNECTOR, _MODULE = "MemoryConnector", "deepthink_cli.serving.vllm.connector"


@with_config(STRICT)
@dataclass(frozen=True)
class Served:
    """One iteration of a memory file that a server has; `name` is the model's name in requests.

    A file with another digest than `sha256` is not served.
    """

    name: Annotated[str, Field(min_length=1)]
    path: str
    iteration: Annotated[int, Field(ge=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @property
    def salt(self) -> str:
        """The `cache_salt` of the memory's requests, by which vLLM keeps their keys and values apart from others."""
        return f"{SALT}{self.sha256}:{self.iteration}"

    def header(self) -> Header:
        """The header of the file; raises InputError if it is not the memory that was named."""
        header = read_header(self.path)
        if header.metadata.sha256 != self.sha256:
            raise InputError(
                f"{self.path}: another memory than when the server's command was written; run deepthink serve-config "
                "again"
            )
        return header


_SERVED = TypeAdapter(list[Served])


def parse_served(settings: Mapping[str, Any]) -> list[Served]:
    """The memories of `kv_connector_extra_config`; raises InputError for anything that `server_settings` did not write."""
    try:
        memories = _SERVED.validate_python(settings.get("memories"))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"kv_connector_extra_config: memories{place(first)}: {reason(first)}; use what deepthink serve-config prints"
        ) from error
    check_names(memories)
    return memories


def check_names(memories: Sequence[Served]) -> None:
    """Raise InputError if two memories have one name."""
    names = [memory.name for memory in memories]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"memories: {', '.join(doubled)} is the name of two files; rename one of them")
