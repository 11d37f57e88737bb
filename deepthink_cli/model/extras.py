"""Optional packages."""

from __future__ import annotations

import importlib.util

from deepthink_cli.errors import InputError


def check_installed(named: str, extra: str, *packages: str) -> None:
    """Raise InputError, which begins with `named`, for the first package that is not installed; `extra` installs it."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{named}: {package} is not installed; pip install 'deepthink-cli[{extra}]'")
