"""The calibrations by name, as `--calibrate` takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deepthink_cli.calibration.base import Calibration
from deepthink_cli.errors import InputError
from deepthink_cli.registry import Registry, instance_of

_HERE = "deepthink_cli.calibration"
NONE = "none"
_ALL = (
    Calibration(
        "contextual",
        f"{_HERE}.estimates:log_mean",
        "content-free",
        "labels after the inputs 'N/A', '[MASK]' and an empty one",
        "Zhao et al. 2021, arXiv 2102.09690",
        own_candidates=True,
        averaged=True,
    ),
    Calibration(
        "domain",
        f"{_HERE}.estimates:log_mean",
        "domain",
        "labels after 20 texts of random words from the demonstrations",
        "Fei et al. 2023, arXiv 2305.19148",
        own_candidates=True,
        averaged=True,
    ),
    Calibration(
        "batch",
        f"{_HERE}.estimates:log_mean",
        "batch",
        "the mean probability of each label over the inputs",
        "Zhou et al. 2023, arXiv 2309.17249",
        averaged=True,
    ),
    Calibration(
        "pmi",
        f"{_HERE}.estimates:log_premise",
        "premise",
        "labels after the end of the template alone",
        "Holtzman et al. 2021, arXiv 2104.08315",
        own_candidates=True,
    ),
    Calibration(
        "prior",
        f"{_HERE}.estimates:log_matched",
        "batch",
        "the bias without which all labels are equally likely over the inputs",
        "Saerens et al. 2002, Neural Computation 14(1)",
    ),
)


def _check(name: str, value: Any) -> Calibration:
    found = instance_of(Calibration)(name, value)
    if found.name != name:
        raise ValueError(f"a calibration with another name, {found.name!r}")
    return found


CALIBRATIONS: Registry[Calibration] = Registry("calibrations", {each.name: each for each in _ALL}, _check)


def calibration(name: str) -> Calibration:
    """The calibration of this name; raises InputError for an unknown one."""
    if name not in CALIBRATIONS:
        raise InputError.of(
            "calibrate", name, f"use {', '.join((NONE, *CALIBRATIONS))}, or several separated by commas"
        )
    return CALIBRATIONS[name]


def calibrations(text: str | None) -> tuple[str, ...]:
    """The names in a list separated by commas; none for None. Raises InputError for an unknown or repeated one."""
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    for name in names:
        if name != NONE:
            calibration(name)
        if names.count(name) > 1:
            raise InputError.of("calibrate", text, f"{name} is duplicated; name each once")
    return names


def from_rows(names: Iterable[str]) -> list[str]:
    """Those of the names whose bias is estimated from the rows themselves."""
    return [name for name in names if name != NONE and calibration(name).from_rows]
