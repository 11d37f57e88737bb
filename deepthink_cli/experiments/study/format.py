"""The format of study files: axes, each a list of values that are crossed, and what all their runs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticKnownError

from deepthink_cli.data.chat import Chat
from deepthink_cli.experiments.options import SweepOptions
from deepthink_cli.experiments.study.figure import Form
from deepthink_cli.method import GateOptions, Positions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.selection.registry import Sampling

GATES = tuple(GateOptions.model_fields)
# One run crosses the values of these axes; of every other axis it has one.
IN_ONE_RUN = ("tasks", "seeds", "demos_by", "methods", "updates", *GATES, "calibrations")
AXES = ("models", "protocols", "shots", "orders", "sampling", "positions", *IN_ONE_RUN)
WITH_DEFAULTS = ("shots", "orders", "sampling")  # axes in which None stands for the task's own value
MAX_SEEDS = 1_000_000

Word = Annotated[str, Field(min_length=1)]
Seed = Annotated[int, Field(ge=0)]
Values = tuple[Any, ...]


def _model(value: Any) -> Any:
    return {"model": value} if isinstance(value, str) else value


Model = Annotated[ModelOptions, BeforeValidator(_model)]


class Study(SweepOptions):
    """A study: the values of its axes, combinations to exclude, and the options that its runs share.

    None in an axis stands for the task's own number of shots, order or sampling. `scales` hold fields that replace
    those of the study; `figure` says how it is drawn.
    """

    model_config = ConfigDict(strict=True)

    name: str = Field(min_length=1)
    title: str = ""
    source: str = ""
    note: str = ""
    models: tuple[Model, ...] = Field(default_factory=lambda: (ModelOptions.checked(),), min_length=1)
    tasks: tuple[Word, ...] = Field(min_length=1)
    protocols: tuple[Word, ...] = Field(("official",), min_length=1)
    seeds: tuple[Seed, ...] = Field((0,), min_length=1)
    shots: tuple[Annotated[int, Field(ge=1)] | None, ...] = Field((None,), min_length=1)
    orders: tuple[Seed | None, ...] = Field((None,), min_length=1)
    sampling: tuple[Sampling | None, ...] = Field((None,), min_length=1)
    positions: tuple[Positions, ...] = Field(("continued",), min_length=1)
    limit: int | None = Field(None, ge=1)
    data_dir: Word | None = None
    chat: bool = False
    system: str | None = None
    exclude: tuple[dict[str, Any], ...] = ()
    scales: dict[str, dict[str, Any]] = Field(default_factory=dict)
    figure: Form | None = None

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, values: Any) -> Any:
        """A single value of an axis is a list of one; the number of seeds counts them from 0."""
        if not isinstance(values, Mapping):
            return values
        return {name: _listed(name, value) for name, value in values.items()}

    @field_validator("demos_by", "methods", "updates", *GATES, "calibrations", mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """An axis without values would cross to nothing."""
        if values == ():
            raise PydanticKnownError("too_short", {"field_type": "Tuple", "min_length": 1, "actual_length": 0})
        return values

    @field_validator("at", mode="before")
    @classmethod
    def _numbers(cls, at: Any) -> Any:
        numbers = at if isinstance(at, tuple) else (at,)
        is_listed = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
        return ",".join(map(str, numbers)) if numbers and is_listed else at

    @property
    def conversation(self) -> Chat | None:
        """The conversation that the prompts are turns of, if any."""
        return Chat(self.system) if self.chat else None

    def axes(self) -> dict[str, Values]:
        """The values of every axis; of one that has none, None alone."""
        return {name: getattr(self, name) or (None,) for name in AXES}


def _listed(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if name == "seeds" and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SEEDS:
        return tuple(range(value))
    is_list = name in (*AXES, "exclude") and (value is not None or name in WITH_DEFAULTS)
    return (value,) if is_list else value
