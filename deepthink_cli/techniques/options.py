"""The options of a technique, and their validation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from deepthink_cli.io.records import Count
from deepthink_cli.options import METHOD, Flag, Options, named_by
from deepthink_cli.registry import installed
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES, sample, technique_of


def _described(techniques: Iterable[Technique]) -> str:
    return "; ".join(f"{each.family}: {each.summary}" for each in techniques)


_OTHERS = [each for each in map(sample, TECHNIQUES.own) if each.members == 1 and each.name != DEEP_THINKING]
_TRAINED = [each for each in _OTHERS if isinstance(each, Trained)]
_CONTROLS = [each for each in _OTHERS if each not in _TRAINED]
_TRAINING = ", ".join(each.name for each in _TRAINED)
LearningRate = Annotated[float, Field(gt=0, le=1e6)]
STEPS = Flag(
    METHOD,
    f"Gradient steps of {_TRAINING}. Default: {Trained.steps}.",
    "N",
    hint="a number of steps, 1 or more",
    default=False,
)
LEARNING_RATE = Flag(
    METHOD,
    f"Learning rate of {_TRAINING}. Default: {Trained.lr}.",
    "X",
    hint="a learning rate above 0, as in 0.001",
    default=False,
)


class TechniqueOptions(Options):
    """What makes a memory: Deep-Thinking or another technique, and the parameters of one that trains.

    `steps` and `lr` are None for the technique's own.
    """

    technique: Annotated[
        str,
        named_by(technique_of),
        Flag(
            METHOD,
            f"{DEEP_THINKING}; {_described(_TRAINED)}; or a control, also with -T: "
            f"{_described(_CONTROLS)}{installed(TECHNIQUES)}.",
            "NAME",
            complete="techniques",
            variable=False,
        ),
    ] = DEEP_THINKING
    steps: Annotated[Count | None, STEPS] = None
    lr: Annotated[LearningRate | None, LEARNING_RATE] = None

    @property
    def chosen(self) -> Technique:
        """The technique with its parameters."""
        return technique_of(self.technique, steps=self.steps, lr=self.lr)
