"""Integrations with other libraries: one file for each, which imports the library only when used.

`INTEGRATIONS` names the files, so that they can be listed without importing any of these libraries.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from deepthink_cli.errors import InputError

INTEGRATIONS = {
    "frames": "deepthink_cli.integrations.frames",
    "hub": "deepthink_cli.integrations.hub",
    "lighteval": "deepthink_cli.integrations.lighteval",
    "lm_eval": "deepthink_cli.integrations.lm_eval.model",
    "sklearn": "deepthink_cli.integrations.sklearn",
    "tracking": "deepthink_cli.integrations.tracking",
}


def integration(name: str) -> ModuleType:
    """The module of an integration; raises InputError for an unknown name."""
    if name not in INTEGRATIONS:
        raise InputError(f"integration {name!r} is unknown; the known ones are {', '.join(INTEGRATIONS)}")
    return import_module(INTEGRATIONS[name])
