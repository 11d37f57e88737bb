"""The options of a technique, and their validation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from deepthink_cli.options import METHOD, Flag, Options, named_by
from deepthink_cli.registry import installed
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES, sample, technique_of


def _described(techniques: Iterable[Technique]) -> str:
    return "; ".join(f"{each.family}: {each.summary}" for each in techniques)


_OTHERS = [each for each in map(sample, TECHNIQUES.own) if each.members == 1 and each.name != DEEP_THINKING]
_TRAINED = [each for each in _OTHERS if isinstance(each, Trained)]
_CONTROLS = [each for each in _OTHERS if each not in _TRAINED]


class TechniqueOptions(Options):
    """What makes a memory: Deep-Thinking or another technique, with its parameters."""

    technique: Annotated[
        str,
        named_by(technique_of),
        Flag(
            METHOD,
            f"{DEEP_THINKING}; {_described(_TRAINED)}; or a control, also with -T: "
            f"{_described(_CONTROLS)}{installed(TECHNIQUES)}.",
            "NAME[:PARAMETER=VALUE,...]",
            variable=False,
        ),
    ] = DEEP_THINKING

    @property
    def chosen(self) -> Technique:
        """The technique with its parameters."""
        return technique_of(self.technique)
