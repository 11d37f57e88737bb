"""The engines by name: `--engine NAME` forces one, `auto` chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.registry import Registry, lazy

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.network import LanguageModel

    Kind = Callable[[LanguageModel], Engine]

AUTO = "auto"


def _check(name: str, kind: Any) -> Kind:
    if not callable(kind):
        raise TypeError(f"a {type(kind).__name__}, not a class of engines")
    found: Kind = kind
    return found


# Engines import torch, so they are imported only when used. The argument of an engine is a `LanguageModel`. An engine
# that loads the weights itself has a method `of_spec`, which is called with a `ModelSpec` instead.
ENGINES: Registry[Kind] = Registry(
    "engines",
    {
        "packed": lazy("deepthink_cli.engine.packed:PackedEngine"),
        "padded": lazy("deepthink_cli.engine.padded:PaddedEngine"),
    },
    _check,
)


def known_engines() -> list[str]:
    """The names of the registered engines, and `auto`."""
    return [AUTO, *ENGINES]


def check_engine(name: str) -> None:
    """Raise InputError unless `name` is a registered engine or `auto`."""
    if name != AUTO:
        engine_class(name)


def engine_class(name: str) -> Kind:
    """The class of the engine called `name`, which is not `auto`; raises InputError for an unknown name."""
    kind = ENGINES.get(name)
    if kind is None:
        raise InputError.of("engine", name, f"no such engine; use {', '.join(known_engines())}")
    return kind
