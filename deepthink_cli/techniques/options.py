"""The options of a technique, and their validation."""

from __future__ import annotations

from pydantic import Field, field_validator

from deepthink_cli.method import CT_KV, DEEP_THINKING
from deepthink_cli.options import Options
from deepthink_cli.techniques.registry import NAMES, is_technique


class TechniqueOptions(Options):
    """What makes a memory: Deep-Thinking or another technique, and the parameters of Context Tuning.

    `steps` and `lr` are None for the defaults.
    """

    method: str = DEEP_THINKING
    steps: int | None = Field(None, ge=1)
    lr: float | None = Field(None, gt=0)

    @field_validator("method")
    @classmethod
    def _technique(cls, name: str) -> str:
        if not is_technique(name):
            raise ValueError(f"use {NAMES}")
        return name

    @property
    def trains(self) -> bool:
        """Whether the memory is trained."""
        return self.method == CT_KV
