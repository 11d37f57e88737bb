"""The options of iterative vectors: how they are extracted, and how strongly they are added to a prompt."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from deepthink_cli.options import DATA, METHOD, Flag, Options

_HINT = "a number, 0 or more"
ALPHA = Flag(
    METHOD,
    "Factor of the vectors that are added to a prompt. Default: 1, or what the file of vectors says.",
    "X",
    hint=_HINT,
    variable=False,
    default=False,
)


class VectorOptions(Options):
    """How vectors are extracted; the defaults are those of the authors' code."""

    episodes: Annotated[
        int,
        Field(ge=1),
        Flag(METHOD, "Episodes, each of two passes.", "N", hint="a number of episodes, 1 or more"),
    ] = 200
    extraction_alpha: Annotated[
        float,
        Field(ge=0),
        Flag(METHOD, "Factor of the vectors that are added while they are extracted.", "X", hint=_HINT),
    ] = 0.1
    alpha: Annotated[float, Field(ge=0), ALPHA] = 1.0
    shots: Annotated[
        int,
        Field(ge=1),
        Flag(DATA, "Demonstrations of each label, in an episode and in a prompt.", "K", hint="a number, 1 or more"),
    ] = 1
    seed: Annotated[
        int, Field(ge=0), Flag(DATA, "Seed for drawing the episodes.", "S", hint="a whole number, 0 or more")
    ] = 0


class AddedOptions(Options):
    """How strongly the vectors of a file are added to a prompt; None for what the file says."""

    alpha: Annotated[float | None, Field(ge=0), ALPHA] = None
