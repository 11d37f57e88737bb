"""The versions of what made a page."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("deepthink-cli", "torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pandas")


def versions() -> dict[str, str]:
    """The version of Python and of every installed package that takes part, by name."""
    installed = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed
