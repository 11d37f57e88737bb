"""The options of a choice of demonstrations from a pool, and their validation."""

from __future__ import annotations

from pydantic import Field, field_validator

from deepthink_cli.errors import InputError
from deepthink_cli.options import Options
from deepthink_cli.selection.registry import Sampling, selection_method


class SelectOptions(Options):
    """How demonstrations are chosen from a pool: by a registered method, from all rows or a seeded sample of them."""

    method: str = "random"
    shots: int = Field(ge=1)
    seed: int = Field(0, ge=0)
    balance: bool = False
    pool_size: int | None = Field(None, ge=1)

    @field_validator("method")
    @classmethod
    def _registered(cls, method: str) -> str:
        try:
            selection_method(method, "--method")
        except InputError as error:
            raise ValueError(error.messages[0].partition(": ")[2]) from error
        return method


class TaskOptions(Options):
    """How a task's demonstrations are drawn and how many of its rows are evaluated; None means the task's default."""

    shots: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    order_seed: int | None = Field(None, ge=0)
    sampling: Sampling | None = None
    limit: int | None = Field(None, ge=1)
