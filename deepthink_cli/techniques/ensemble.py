"""Ensembles of a run: the same demonstrations in several orders, with the mean of their log-probabilities."""

from __future__ import annotations

import re

from deepthink_cli.errors import InputError
from deepthink_cli.techniques.registry import NAMES, is_technique

_ENSEMBLE = re.compile(r"ensemble-([2-9]|[1-9]\d{1,2})")


def ensemble_size(name: str) -> int | None:
    """How many memories `ensemble-N` has; None for another technique."""
    match = _ENSEMBLE.fullmatch(name)
    return None if match is None else int(match[1])


def check_run_technique(name: str) -> str:
    """The name of a technique that a run may use; raises InputError for an unknown one."""
    if not is_technique(name) and ensemble_size(name) is None:
        raise InputError(f"--method {name}: use {NAMES}, or ensemble-N, N from 2")
    return name
