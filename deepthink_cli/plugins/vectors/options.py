"""The options of iterative vectors, and the opener of their files, which is named without importing torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from deepthink_cli.artifact.container import Opener
from deepthink_cli.io.records import Natural
from deepthink_cli.options import DATA, METHOD, Flag, Options

Factor = Annotated[float, Field(ge=0, le=1e6)]
_HINT = "a number from 0 to a million"
ALPHA = Flag(
    METHOD,
    "Factor of the vectors that are added to a prompt. Default: 1, or what the file of vectors says.",
    "X",
    hint=_HINT,
    variable=False,
    default=False,
)


class VectorOptions(Options):
    """The options of the extraction of vectors; the defaults are from the authors' code."""

    episodes: Annotated[
        int, Field(ge=1), Flag(METHOD, "Episodes, each of two passes.", "N", hint="a number of episodes, 1 or more")
    ] = 200
    extraction_alpha: Annotated[
        Factor, Flag(METHOD, "Factor of the vectors that are added while they are extracted.", "X", hint=_HINT)
    ] = 0.1
    alpha: Annotated[Factor, ALPHA] = 1.0
    shots: Annotated[
        int,
        Field(ge=1),
        Flag(DATA, "Demonstrations of each label, in an episode and in a prompt.", "K", hint="a number, 1 or more"),
    ] = 1
    seed: Annotated[
        Natural, Flag(DATA, "Seed for drawing the episodes.", "S", hint="a whole number from 0 to 2^63 - 1")
    ] = 0


class AddedOptions(Options):
    """The factor with which the vectors of a file are added to a prompt; None for the file's own factor."""

    alpha: Annotated[Factor | None, ALPHA] = None


VECTORS = Opener(
    "deepthink_cli.plugins.vectors.file:open_vectors",
    "deepthink_cli.plugins.vectors.file:describe",
    "iterative vectors",
    "vectors that are added to one reading of demonstrations, and to the query",
    "https://proceedings.mlr.press/v267/liu25j.html",
    AddedOptions,
)
