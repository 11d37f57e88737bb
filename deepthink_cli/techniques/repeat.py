"""The control that reads the demonstrations several times in one context."""

from __future__ import annotations

from dataclasses import replace

from deepthink_cli.data.examples import DemonstrationSet


def repeated(demonstrations: DemonstrationSet, times: int) -> DemonstrationSet:
    """All demonstrations `times` times, block after block, each block in their order."""
    return replace(demonstrations, examples=demonstrations.examples * times)
