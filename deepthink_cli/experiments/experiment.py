"""What a run measures: the values of its axes, which are crossed, and what all of them have in common.

The options of `deepthink run` make an experiment, and so does the file of a study. A new option is a field here,
and a field of the rows that it identifies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, field_validator

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE, calibration
from deepthink_cli.errors import InputError, option, parameter
from deepthink_cli.experiments.results import Part, Point
from deepthink_cli.io.records import Natural
from deepthink_cli.method import ITERATIONS, POSITIONS, GateOptions, Positions
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.options import DATA, METHOD, Flag, TokenIds, chosen_iterations, named_by
from deepthink_cli.registry import installed, split_names
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.selection.options import BALANCE, ORDER_SEED, POOL_SIZE, SAMPLING, SHOTS, Limit
from deepthink_cli.selection.registry import Sampling, selection_method
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES, technique_of
from deepthink_cli.updates import GATE, RULES, Gate, RuleText, UpdateRule, parse_rule

if TYPE_CHECKING:
    from deepthink_cli.tasks.format import Task

# One run crosses the values of these axes; of every other axis it has one.
IN_ONE_RUN = ("tasks", "seeds", "demos_by", "techniques", "updates", *GateOptions.model_fields, "calibrations")
AXES = ("models", "protocols", "shots", "orders", "sampling", "positions", *IN_ONE_RUN)
BETWEEN_RUNS = tuple(axis for axis in AXES if axis not in IN_ONE_RUN)

RunCode = Annotated[
    bool,
    Flag(
        DATA,
        "Run the programs that a task asks for, which the model has written: in bubblewrap where it is installed, else "
        "in namespaces of their own, else with limits alone; what holds is said first.",
        variable=False,
    ),
]
Word = Annotated[str, Field(min_length=1)]
Shots = Annotated[int, Field(ge=1)]


Model = Annotated[ModelOptions, BeforeValidator(lambda value: {"model": value} if isinstance(value, str) else value)]


def _several(flag: Flag, metavar: str, name: str = "") -> Flag:
    """The flag of an option that takes values separated by commas, where other commands take one value."""
    return replace(flag, metavar=metavar, name=name, names="")


def _scoring(options: Any) -> Scoring:
    if isinstance(options, Scoring):
        return options
    if not isinstance(options, dict):
        raise ValueError("give options of scoring by name, as in {score: end, reread: 2}")
    try:
        return Scoring.of(**options)
    except InputError as error:
        raise ValueError("; ".join(each.written(parameter) for each in error.problems)) from error


class Experiment(GateOptions):
    """The values of every axis, and the options that all combinations of them share.

    None in an axis stands for the task's own number of shots, order or sampling. `tasks` are names of tasks and groups,
    and paths of task files; `demos` is the path of a file of demonstrations, for one task and one seed. Relative paths
    are those of the process that plans. `scoring` is written as the options that do not have
    their defaults. `run_code` lets programs of the model run.
    """

    models: tuple[Model, ...] = Field(default_factory=lambda: (ModelOptions.checked(),), min_length=1)
    tasks: tuple[Word, ...] = ()
    protocols: tuple[Word, ...] = Field(("official",), min_length=1)
    seeds: Annotated[
        tuple[Natural, ...],
        Flag(
            DATA,
            "Demonstration seeds: a count (10 for 0 to 9) or a list, as in 3,5; '42,' is the single seed 42.",
            "N",
            hint="a number of seeds, as in 10 for 0 to 9, or a list, as in 3,5, or one with a comma, as in 0,",
            default="1",
        ),
    ] = (0,)
    shots: Annotated[tuple[Shots | None, ...], _several(SHOTS, "N,...")] = (None,)
    orders: Annotated[tuple[Natural | None, ...], _several(ORDER_SEED, "S,...", "order_seed")] = (None,)
    sampling: Annotated[tuple[Sampling | None, ...], _several(SAMPLING, "NAME,...")] = (None,)
    positions: Annotated[tuple[Positions, ...], _several(POSITIONS, "[continued|restarted],...")] = ("continued",)
    limit: Limit = None
    data_dir: Word | None = None
    demos: Word | None = None
    tokens: TokenIds = "prompt"
    chat: bool = False
    system: str | None = None
    iterations: Annotated[int, Field(ge=1), ITERATIONS] = 5
    at: Annotated[
        str,
        Flag(
            METHOD,
            "Iterations to score: all, or numbers as in 1,2,5,10 (1 to compare with); those between are read too.",
            "T,...",
            hint="give all, or iterations as in 1,3,5",
            variable=False,
        ),
    ] = "all"
    choose_on: Annotated[
        str | None,
        Field(pattern=r"^dev(:[1-9][0-9]{0,8})?$"),
        Flag(
            METHOD,
            "Also score a dev set of training rows, with which report then chooses T and eta: N of them, or as many as "
            "there are test rows.",
            "dev[:N]",
            hint="use dev, or dev:N for N rows",
            variable=False,
        ),
    ] = None
    demos_by: Annotated[
        tuple[Annotated[str, named_by(partial(selection_method, field="demos_by"))], ...],
        Flag(
            DATA,
            "Choose demonstrations with these methods (deepthink list selections), each from one pool of 1,000 rows.",
            "NAME,...",
            default=False,
        ),
    ] = ()
    pool_size: Annotated[int, Field(ge=1), POOL_SIZE] = 1_000
    balance: Annotated[bool | None, BALANCE] = None
    techniques: Annotated[
        tuple[Annotated[str, named_by(partial(technique_of, in_run=True))], ...],
        BeforeValidator(split_names),
        Flag(
            METHOD,
            "Ways to make memories (deepthink list techniques), with parameters as in ct-kv:steps=50"
            f"{installed(TECHNIQUES)}. Default: {DEEP_THINKING}.",
            "NAME[:PARAMETER=VALUE],...",
            name="technique",
            default=False,
        ),
    ] = (DEEP_THINKING,)
    calibrations: Annotated[
        tuple[Annotated[str, named_by(lambda name: name == NONE or calibration(name))], ...],
        Flag(
            METHOD,
            f"Corrections of the scores, each with rows of its own: {', '.join((NONE, *CALIBRATIONS))}.",
            "NAME,...",
            name="calibrate",
            default=False,
        ),
    ] = (NONE,)
    scoring: Annotated[Scoring, PlainValidator(_scoring), PlainSerializer(lambda each: each.recorded)] = PLAIN
    updates: Annotated[
        tuple[RuleText, ...],
        BeforeValidator(split_names),
        Flag(
            METHOD,
            f"How readings change the memory, each rule with rows of its own: {', '.join(RULES)} (docs/think.md). "
            "Default: gate, as in the paper.",
            "RULE,...",
            name="update",
            default=False,
        ),
    ] = (GATE,)

    run_code: RunCode = False

    @property
    def runs(self) -> list[Experiment]:
        """The experiment of every run, with one value in each axis that a run does not cross."""
        combinations = product(*(getattr(self, axis) for axis in BETWEEN_RUNS))
        boxes = ({axis: (value,) for axis, value in zip(BETWEEN_RUNS, each, strict=True)} for each in combinations)
        return [self.model_copy(update=box) for box in boxes]

    @property
    def rules(self) -> tuple[UpdateRule, ...]:
        """Every update rule with every gate, if it has one."""
        return tuple(dict.fromkeys(parse_rule(name, gate) for name in self.updates for gate in self.gates))

    @field_validator("demos_by", "calibrations", "shots", "orders", "sampling", "positions", mode="before")
    @classmethod
    def _written_list(cls, text: Any) -> Any:
        return [name.strip() for name in text.split(",")] if isinstance(text, str) else text

    @field_validator("seeds", mode="before")
    @classmethod
    def _written_seeds(cls, text: Any) -> Any:
        """`10` is 0 to 9, `3,5` these two, `7,` seed 7 alone."""
        if not isinstance(text, str):
            return text
        if not re.fullmatch(r"\s*[0-9]{1,6}\s*(,\s*[0-9]{1,6}\s*)*,?\s*", text) or not text.strip().strip("0"):
            raise ValueError("not a list of seeds")
        parts = [int(part) for part in text.split(",") if part.strip()]
        return tuple(parts) if "," in text else tuple(range(parts[0]))

    @field_validator("seeds", "shots", "orders", "sampling", "positions")
    @classmethod
    def _each_once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(values))

    @field_validator("demos_by", "techniques", "calibrations")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        plain = [name.partition(":")[0] for name in names]
        for name in plain:
            if plain.count(name) > 1:
                raise ValueError(f"{name} is duplicated; name each once")
        return names

    @field_validator("at")
    @classmethod
    def _listed(cls, at: str) -> str:
        if at != "all" and not all(re.fullmatch(r"\s*\d{1,6}\s*", part) for part in at.split(",")):
            raise ValueError("give all, or iterations as in 1,3,5")
        return at

    @property
    def dev_size(self) -> int | None:
        """The rows of the dev set; None for as many as there are test rows."""
        size = (self.choose_on or "").partition(":")[2]
        return int(size) if size else None

    @property
    def chosen_techniques(self) -> tuple[Technique, ...]:
        """The techniques with their parameters."""
        return tuple(technique_of(name, in_run=True) for name in self.techniques)

    @property
    def scored(self) -> tuple[int, ...]:
        """The iterations that are scored, in order; raises InputError for one beyond T."""
        return chosen_iterations("at", self.at, self.iterations)

    def points(self, technique: Technique) -> list[Point]:
        """What is scored of a job, in the order of its rows; a trained memory has no gate and one T."""
        parts: tuple[Part, ...] = ("test", "dev") if self.choose_on else ("test",)
        if isinstance(technique, Trained):
            return list(product(parts, (Gate(0.0, 0.0),), (1,)))
        return list(product(parts, self.rules, self.scored))

    def scorings(self, evaluated: int, members: int, scored: Iterable[Point]) -> int:
        """The number of inputs to score for these points: T = 1 once for all gates, dev sets in full.

        `evaluated` counts the test rows; each of the `members` of an ensemble scores them. Corrections use the same
        scores.
        """
        sizes = {"test": evaluated, "dev": self.dev_size or evaluated}
        once = {(part, iteration, iteration > 1 and gate) for part, gate, iteration in scored}
        return members * sum(sizes[part] for part, _, _ in once)

    def rows_of_job(self, technique: Technique) -> int:
        """The number of rows of a job."""
        return len(self.points(technique)) * len(self.calibrations)


def run_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks of a run by their names; raises InputError if there are none, and for unknown ones."""
    from deepthink_cli.tasks.catalogue import find_tasks

    if not names:
        raise InputError.of("task", None, f"no task; name one or more, as in {option('task')} classic")
    return find_tasks(names)
