"""The control that reads the demonstrations several times in one context."""

from __future__ import annotations

import re
from dataclasses import replace

from deepthink_cli.data.examples import DemonstrationSet


def repeated(demonstrations: DemonstrationSet, times: int) -> DemonstrationSet:
    """All demonstrations `times` times, block after block, each block in their order."""
    return replace(demonstrations, examples=demonstrations.examples * times)


def copies(technique: str | None) -> int:
    """How often a technique of this name reads every demonstration in one context: R for `repeat-R`, else 1."""
    match = re.fullmatch(r"repeat-(\d+)", technique or "")
    return 1 if match is None else int(match[1])
