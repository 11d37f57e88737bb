"""The engines by name: `--engine NAME` forces one, `auto` chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, option
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


def check_engine(name: str, batch_invariant: bool = False) -> None:
    """Raise InputError unless `name` is a registered engine or `auto`, and, for `batch_invariant`, has own passes."""
    if name not in known_engines():
        raise InputError.of("engine", name, f"no such engine; use {', '.join(known_engines())}")
    if batch_invariant and name != AUTO and hasattr(engine_class(name), "of_spec"):
        raise without_own_passes(name)


def without_own_passes(engine: str) -> InputError:
    """The error of an engine that cannot have passes of one row."""
    reason = f"not with {engine}, which chooses its own passes; use {option('engine')} packed or padded"
    return InputError.of("batch_invariant", None, reason)


def engine_class(name: str) -> Kind:
    """The class of the engine called `name`, which is not `auto`; raises InputError for an unknown name."""
    kind = ENGINES.get(name)
    if kind is None:
        raise InputError.of("engine", name, f"no such engine; use {', '.join(known_engines())}")
    return kind
