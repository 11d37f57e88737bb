"""The engines by name: `--engine NAME` forces one, `auto` chooses."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from deepthink_cli.errors import InputError

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.engine.network import LanguageModel

AUTO = "auto"
# The module of each class, imported only when needed because it imports torch. A `LanguageModel` is its argument.
ENGINES = {
    "packed": "deepthink_cli.engine.packed.PackedEngine",
    "padded": "deepthink_cli.engine.padded.PaddedEngine",
}


def check_engine(name: str) -> None:
    """Raise InputError unless `name` is a registered engine or `auto`."""
    if name not in (AUTO, *ENGINES):
        raise InputError(f"--engine {name}: no such engine; use {', '.join((AUTO, *ENGINES))}")


def engine_class(name: str) -> Callable[[LanguageModel], Engine]:
    """The class of the engine called `name`, which is not `auto`; raises InputError if there is none."""
    check_engine(name)
    module, _, attribute = ENGINES[name].rpartition(".")
    kind: Callable[[LanguageModel], Engine] = getattr(import_module(module), attribute)
    return kind
