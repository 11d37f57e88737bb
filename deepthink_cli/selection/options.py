"""The options of a choice of demonstrations from a pool, and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from deepthink_cli.io.records import Natural
from deepthink_cli.options import DATA, Flag, Options, named_by
from deepthink_cli.selection.registry import SelectionMethod, selection_method, without_model

BALANCE = Flag(
    DATA, "Choose equal numbers of demonstrations of every label. Default: as the method's source does.", default=False
)
POOL_SIZE = Flag(DATA, "Choose from a seeded sample of N rows. Default: all.", "N", hint="a number of rows, 1 or more")
SHOTS = Flag(
    DATA,
    "Number of demonstrations. Default: the task's own.",
    "N",
    hint="a number of demonstrations, 1 or more",
    default=False,
)
ORDER_SEED = Flag(DATA, "Seed for the order of the same demonstrations.", "S", hint="a whole number from 0 to 2^63 - 1")
SAMPLING = Flag(DATA, "How a task's demonstrations are drawn. Default: the task's own, random.", names=without_model)
SEED = Flag(
    DATA, "Seed for choosing demonstrations. Default: 0.", "S", hint="a whole number from 0 to 2^63 - 1", default=False
)


class SelectOptions(Options):
    """The options of a choice from a pool: by a registered method, from all rows or a seeded sample.

    `own` are values of the method's own options.
    """

    demos_by: Annotated[
        str,
        named_by(partial(selection_method, field="demos_by")),
        Flag(
            DATA,
            "How rows are chosen; deepthink list selections shows the methods.",
            "NAME",
            variable=False,
            default=False,
        ),
    ] = "random"
    shots: Annotated[int, Field(ge=1), SHOTS]
    seed: Annotated[Natural, SEED] = 0
    balance: Annotated[bool | None, BALANCE] = None
    pool_size: Annotated[int | None, Field(ge=1), POOL_SIZE] = None
    own: Mapping[str, Any] = {}

    @property
    def method(self) -> SelectionMethod:
        """The method's entry in the registry."""
        return selection_method(self.demos_by, "demos_by")


Limit = Annotated[
    int | None, Field(ge=1), Flag(DATA, "Use a fixed sample of N rows.", "N", hint="a number of rows, 1 or more")
]


class TaskOptions(Options):
    """The options of a task's demonstrations and of the number of its evaluated rows; None is the task's default."""

    shots: Annotated[int | None, Field(ge=1), SHOTS] = None
    seed: Annotated[Natural, SEED] = 0
    limit: Limit = None
