"""The engines by name: `--engine NAME` forces one, `auto` chooses."""

from __future__ import annotations

from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.registry import Registry, instance_of, lazy

AUTO = "auto"


# Engines import torch, so they are imported only when used. The argument of an engine is a `LanguageModel`. An engine
# that loads the weights itself has a method `of_spec`, which is called with a `ModelSpec` instead.
ENGINES: Registry[Any] = Registry(
    "engines",
    {
        "packed": lazy("deepthink_cli.engine.packed:PackedEngine"),
        "padded": lazy("deepthink_cli.engine.padded:PaddedEngine"),
    },
    instance_of(type),
)


def known_engines() -> list[str]:
    """The names of the registered engines, and `auto`."""
    return [AUTO, *ENGINES]


def engine_class(name: str) -> Any:
    """The class of the engine called `name`, None for `auto`; raises InputError for an unknown name."""
    kind = ENGINES.get(name)
    if kind is None and name != AUTO:
        raise InputError.of("engine", name, f"no such engine; use {', '.join(known_engines())}")
    return kind
