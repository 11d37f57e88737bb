"""The options of the method, the model and a run, and their validation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from deepthink_cli.calibration.registry import NONE, calibration
from deepthink_cli.errors import InputError
from deepthink_cli.io.mistakes import reason
from deepthink_cli.method import Method, Positions
from deepthink_cli.selection.registry import Sampling, selection_method
from deepthink_cli.techniques.registry import CT_KV, DEEP_THINKING, NAMES, check_run_technique, is_technique
from deepthink_cli.updates.base import UpdateRule
from deepthink_cli.updates.gate import Gate
from deepthink_cli.updates.registry import GATE, checked_rule, parse_rule, split_rules

POCKET = "pocket"

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantize = Literal["8bit", "4bit"]
RuleText = Annotated[str, BeforeValidator(checked_rule)]  # as in `cosine:readings=15`
ScoreName = Literal["sum", "mean", "end"]  # what is compared of the log-probabilities of a candidate's tokens


class Options(BaseModel):
    """Base of all options: unknown names are errors, and every error names the command-line option."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    ways_out: ClassVar[Mapping[str, str]] = {}  # by option, in addition to _WAYS_OUT

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build the options; raises InputError with one message for each wrong value."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise InputError(*(_message(each, cls.ways_out) for each in error.errors())) from error


class ModelOptions(Options):
    """Which model, in which dtype, on which device, by which engine."""

    model: str = Field(POCKET, min_length=1)
    revision: str | None = None
    gguf: str | None = Field(None, min_length=1)
    adapter: str | None = Field(None, min_length=1)
    dtype: Dtype = "auto"
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    device_map: Literal["auto"] | None = None
    quantize: Quantize | None = None
    offline: bool = False
    trust_remote_code: bool = False
    batch_tokens: int | None = Field(None, ge=1)
    engine: str = "auto"


class MethodOptions(Options):
    """Options of the method: T, eta and related ones (section 3.1 of the paper)."""

    iterations: int = Field(5, ge=1)
    eta: float = Field(0.01, gt=0, le=1)
    momentum: float = Field(0.0, ge=0, lt=1)
    positions: Positions = "continued"
    keep: str = "last"
    update: RuleText = GATE

    @field_validator("keep")
    @classmethod
    def _known(cls, keep: str) -> str:
        if keep not in ("last", "all") and not all(re.fullmatch(r"\s*\d{1,6}\s*", part) for part in keep.split(",")):
            raise ValueError("say last, all, or iterations as in 1,3,5")
        return keep

    @property
    def method(self) -> Method:
        """The method that these options describe."""
        return Method(self.iterations, parse_rule(self.update, Gate(self.eta, self.momentum)), self.positions)

    @property
    def kept(self) -> tuple[int, ...]:
        """The iterations whose memory is stored, in order; raises InputError for one beyond T."""
        if self.keep == "last":
            return (self.iterations,)
        return _chosen_iterations("--keep", self.keep, self.iterations)


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


class TaskOptions(Options):
    """How a task's demonstrations are drawn and how many of its rows are evaluated; None means the task's default."""

    shots: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    order_seed: int | None = Field(None, ge=0)
    sampling: Sampling | None = None
    limit: int | None = Field(None, ge=1)


class GateOptions(Options):
    """A grid of gates."""

    etas: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.01,)
    momentums: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = (0.0,)

    @field_validator("etas", "momentums", mode="before")
    @classmethod
    def _several(cls, text: Any) -> Any:
        return text.split(",") if isinstance(text, str) else text

    @field_validator("etas", "momentums")
    @classmethod
    def _distinct(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(dict.fromkeys(values))

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Every eta with every momentum."""
        return tuple(Gate(eta, momentum) for eta in self.etas for momentum in self.momentums)


def _named_by(check: Callable[[str], object]) -> AfterValidator:
    """Refuses a name that `check` does not know, with its message less the option that the message begins with."""

    def known(name: str) -> str:
        try:
            check(name)
        except InputError as error:
            raise ValueError(error.messages[0].partition(": ")[2]) from error
        return name

    return AfterValidator(known)


def _selection(name: str) -> object:
    return selection_method(name, option="--demos-by")


def _correction(name: str) -> object:
    return name == NONE or calibration(name)


class SweepOptions(GateOptions):
    """What a run and a study have in common: gates, techniques, corrections and the iterations that are scored."""

    iterations: int = Field(5, ge=1)
    at: str = "all"
    select: Literal["dev"] | None = None
    dev_size: int | None = Field(None, ge=1)
    demos_by: tuple[Annotated[str, _named_by(_selection)], ...] = ()
    pool_size: int | None = Field(None, ge=1)
    balance: bool = False
    methods: tuple[Annotated[str, _named_by(check_run_technique)], ...] = (DEEP_THINKING,)
    steps: int = Field(200, ge=1)
    lr: float = Field(1e-3, gt=0)
    calibrations: tuple[Annotated[str, _named_by(_correction)], ...] = (NONE,)
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
    def scored(self) -> tuple[int, ...]:
        """The iterations that are scored, in order; raises InputError for one beyond T."""
        return _chosen_iterations("--at", self.at, self.iterations)


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


def _chosen_iterations(option: str, choice: str, last: int) -> tuple[int, ...]:
    """The iterations that `choice` lists, in order, or all; raises InputError for one that is not from 1 to `last`."""
    if choice == "all":
        return tuple(range(1, last + 1))
    chosen = tuple(sorted({int(part) for part in choice.split(",")}))
    if chosen[0] < 1 or chosen[-1] > last:
        raise InputError(f"{option} {choice}: iterations run from 1 to {last}; raise -T or name others")
    return chosen


# Options of the command line by the fields that hold several values of them.
SINGULAR = {"etas": "eta", "momentums": "momentum", "methods": "method", "calibrations": "calibrate"}
SINGULAR["updates"] = "update"

_WAYS_OUT = {
    "at": "say all, or iterations as in 1,3,5",
    "seeds": "a number of seeds, as in 10 for 0 to 9, or a list, as in 3,5, or one with a comma, as in 0,",
    "etas": "gates are numbers in (0, 1], as in 0.01 or 0.001,0.01,0.1",
    "momentums": "numbers in [0, 1), as in 0 or 0,0.9",
    "select": "use dev",
    "dev_size": "a number of rows, 1 or more",
    "steps": "a number of steps, 1 or more",
    "lr": "a learning rate above 0, as in 0.001",
    "shots": "a number of demonstrations, 1 or more",
    "pool_size": "a number of rows, 1 or more",
    "seed": "a whole number, 0 or more",
    "order_seed": "a whole number, 0 or more",
    "limit": "a number of rows, 1 or more",
    "iterations": "T counts readings: a whole number, 1 (plain in-context learning) or more",
    "eta": "the gate is a number in (0, 1]; the paper uses 0.01",
    "momentum": "a number in [0, 1); 0 is the paper, 0.9 the official code",
    "device": "use auto, cpu, cuda, cuda:N or mps",
    "keep": "say last, all, or iterations as in 1,3,5",
    "dtype": "use auto, float32, bfloat16 or float16",
    "quantize": "use 8bit or 4bit",
    "positions": "use continued or restarted",
    "folds": "a number of folds, 3 or more, or loo for as many as rows",
    "device_map": "use auto",
    "gguf": "name a GGUF file in the model's directory or hub repository",
    "adapter": "name a directory or hub repository with a LoRA adapter",
    "top": "a number of labels, 1 or more",
    "threshold": "a probability between 0 and 1, as in 0.8",
    "allow_errors": "a number of rows, 0 or more",
    "batch_tokens": "a number of tokens, 1 or more; omit it to have it chosen",
}


def _message(error: Any, ways_out: Mapping[str, str]) -> str:
    name = str(error["loc"][0]) if error["loc"] else "options"
    way_out = ways_out.get(name) or _WAYS_OUT.get(name) or reason(error)
    given = ",".join(map(str, error["input"])) if isinstance(error["input"], list | tuple) else error["input"]
    return f"--{SINGULAR.get(name, name.replace('_', '-'))} {given}: {way_out}"
