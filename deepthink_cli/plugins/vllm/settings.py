"""The command of a vLLM server, and its settings for the served memories; known without vLLM and without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.format import Header, one_iteration, provenance_of, read_header
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.io.processes import SAFE_PATH
from deepthink_cli.model.opening import locate
from deepthink_cli.model.options import POCKET, ModelOptions
from deepthink_cli.provenance import ModelIdentity, check_model

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory

TESTED = ((0, 32), (0, 33))  # vLLM's versions: the first one, and the one before which they end
SALT = "deepthink:"  # with which the cache salt of every memory begins
_CONNECTOR = {"kv_connector": "MemoryConnector", "kv_connector_module_path": "deepthink_cli.plugins.vllm.connector"}
_MIDDLEWARE = "deepthink_cli.plugins.vllm.requests.NamedMemories"


OFFERED: dict[str, Memory] = {}  # by salt: memories of this process that a vLLM in it serves without files


def offer(memory: Memory) -> str:
    """Have a memory served, with its provenance; returns the `cache_salt` of its requests."""
    salt = f"{SALT}offered:{len(OFFERED)}"
    OFFERED[salt] = memory
    return salt


@dataclass(frozen=True)
class Served:
    """One iteration of a memory file that a server has; `name` is the model's name in requests.

    A file with another digest than `sha256` is not served.
    """

    name: str
    path: str
    iteration: int
    sha256: str

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


@dataclass(frozen=True)
class ServerCommand:
    """`vllm serve` of a model with memories: the words of the command, and the memories."""

    words: list[str]
    memories: list[Served]


def server_command(paths: Sequence[Path], at: str = "last") -> ServerCommand:
    """The command that serves one iteration of each file, all made by one model, from where it was then.

    Only the headers of the files are read. Raises InputError for files that cannot be served together, or by vLLM.
    """
    problems, headers = Problems(), list[Header]()
    for path in paths:
        with problems.collected():
            header = read_header(path)
            check_computed(header.metadata.model, header.path)
            check_model(provenance_of(header), (headers or [header])[0].metadata.model, str(path))
            headers.append(header)
    problems.raise_any()
    resolved = [(Path(header.path), header) for header in headers]
    memories = [
        Served(path.stem, str(path.resolve()), one_iteration(header, at), header.metadata.sha256)
        for path, header in resolved
    ]
    made_by = headers[0].metadata.model
    names = [made_by.id, *(memory.name for memory in memories)]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"memories: {', '.join(doubled)} names two of them, or one and the model; rename a file")
    source = locate(ModelOptions.checked(model=POCKET)).source if made_by.id == POCKET else made_by.id
    revision = ["--revision", made_by.revision] if made_by.revision else []
    words = [
        *("env", *(f"{name}={value}" for name, value in SAFE_PATH.items()), "vllm", "serve", source, *revision),
        *("--served-model-name", *names),
        *("--dtype", made_by.dtype, "--middleware", _MIDDLEWARE),
        *("--kv-transfer-config", json.dumps(transfer_config(memories), ensure_ascii=False)),
    ]
    return ServerCommand(words, memories)


def transfer_config(memories: Sequence[Served]) -> dict[str, Any]:
    """vLLM's `kv_transfer_config` with the connector and its memories."""
    return {
        **_CONNECTOR,
        "kv_role": "kv_consumer",
        "kv_connector_extra_config": {"memories": list(map(asdict, memories))},
    }


def parse_served(settings: Mapping[str, Any]) -> list[Served]:
    """The memories of `kv_connector_extra_config`; raises InputError for settings of another command."""
    try:
        return [Served(**each) for each in settings["memories"]]
    except (KeyError, TypeError) as error:
        raise InputError("kv_connector_extra_config: not as printed; use deepthink serve-config") from error


def check_computed(model: ModelIdentity, name: str) -> None:
    """Raise InputError, prefixed with `name`, for a form of a model that vLLM computes in another way."""
    for field in ("gguf", "quantize"):
        if value := getattr(model, field):
            raise InputError(
                f"{name}: made with {option(field)} {value}, and vLLM computes such a model in another way; use "
                "deepthink serve, or another engine"
            )
