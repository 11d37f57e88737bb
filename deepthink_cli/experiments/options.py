"""The options of a run and of a study, and their validation."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from deepthink_cli.calibration.registry import NONE, calibration
from deepthink_cli.method import GateOptions, Positions
from deepthink_cli.options import ScoreName, chosen_iterations, named_by
from deepthink_cli.selection.options import TaskOptions
from deepthink_cli.selection.registry import selection_method
from deepthink_cli.techniques.base import Technique
from deepthink_cli.techniques.registry import DEEP_THINKING, technique_of
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.registry import GATE, RuleText, parse_rule, split_rules


def _selection(name: str) -> object:
    return selection_method(name, option="--demos-by")


def _technique(name: str) -> object:
    return technique_of(name, in_run=True)


def _correction(name: str) -> object:
    return name == NONE or calibration(name)


class SweepOptions(GateOptions):
    """What a run and a study have in common: gates, techniques, corrections and the iterations that are scored."""

    iterations: int = Field(5, ge=1)
    at: str = "all"
    select: Literal["dev"] | None = None
    dev_size: int | None = Field(None, ge=1)
    demos_by: tuple[Annotated[str, named_by(_selection)], ...] = ()
    pool_size: int | None = Field(None, ge=1)
    balance: bool = False
    methods: tuple[Annotated[str, named_by(_technique)], ...] = (DEEP_THINKING,)
    steps: int = Field(200, ge=1)
    lr: float = Field(1e-3, gt=0)
    calibrations: tuple[Annotated[str, named_by(_correction)], ...] = (NONE,)
    score: ScoreName = "sum"
    updates: Annotated[tuple[RuleText, ...], BeforeValidator(split_rules)] = (GATE,)

    @property
    def rules(self) -> tuple[UpdateRule, ...]:
        """Every update rule with every gate, if it has one."""
        return tuple(dict.fromkeys(parse_rule(name, gate) for name in self.updates for gate in self.gates))

    @field_validator("demos_by", "methods", "calibrations", mode="before")
    @classmethod
    def _listed_names(cls, text: Any) -> Any:
        return [name.strip() for name in text.split(",")] if isinstance(text, str) else text

    @field_validator("demos_by", "methods", "calibrations")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is duplicated; name each once")
        return names

    @field_validator("at")
    @classmethod
    def _listed(cls, at: str) -> str:
        if at != "all" and not all(re.fullmatch(r"\s*\d{1,6}\s*", part) for part in at.split(",")):
            raise ValueError("say all, or iterations as in 1,3,5")
        return at

    @property
    def selects_on_dev(self) -> bool:
        """Whether dev rows are scored as well, to choose T and eta on them."""
        return self.select is not None

    @property
    def techniques(self) -> tuple[Technique, ...]:
        """The techniques with their parameters."""
        return tuple(technique_of(name, True, self.steps, self.lr) for name in self.methods)

    @property
    def scored(self) -> tuple[int, ...]:
        """The iterations that are scored, in order; raises InputError for one beyond T."""
        return chosen_iterations("--at", self.at, self.iterations)


class RunOptions(SweepOptions, TaskOptions):
    """Options of a run: its grid of seeds and gates; `seeds` is a number or a list.

    `run_code` lets programs run, and `unsafe` also as root without confinement.
    """

    seeds: str = Field("1", pattern=r"^\s*[0-9]{1,6}\s*(,\s*[0-9]{1,6}\s*)*,?\s*$")
    positions: Positions = "continued"
    run_code: bool = False
    unsafe: bool = False

    @field_validator("seeds")
    @classmethod
    def _at_least_one(cls, seeds: str) -> str:
        if not seeds.strip().strip("0"):
            raise ValueError("no seeds")
        return seeds

    @property
    def every_seed(self) -> tuple[int, ...]:
        """The seeds: `10` is 0 to 9, `3,5` these two, `7,` the seventh alone."""
        parts = [int(part) for part in self.seeds.split(",") if part.strip()]
        return tuple(dict.fromkeys(parts)) if "," in self.seeds else tuple(range(parts[0]))
