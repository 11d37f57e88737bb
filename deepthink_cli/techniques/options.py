"""The options of a technique, and their validation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from deepthink_cli.options import Options, named_by
from deepthink_cli.techniques.base import Technique
from deepthink_cli.techniques.registry import DEEP_THINKING, technique_of


class TechniqueOptions(Options):
    """What makes a memory: Deep-Thinking or another technique, and the parameters of one that trains.

    `steps` and `lr` are None for the technique's own.
    """

    method: Annotated[str, named_by(technique_of)] = DEEP_THINKING
    steps: int | None = Field(None, ge=1)
    lr: float | None = Field(None, gt=0)

    @property
    def technique(self) -> Technique:
        """The technique with its parameters."""
        return technique_of(self.method, steps=self.steps, lr=self.lr)
