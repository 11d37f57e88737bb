"""The interface of techniques: the demonstrations that each reads, and whether its memory is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

from pydantic import Field

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import Problem
from deepthink_cli.events import Tell, silent
from deepthink_cli.provenance import RecordedTechnique, TokenizedDemonstrations

if TYPE_CHECKING:  # techniques are named in help pages and reports, without torch
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.spec import ModelSpec


@dataclass(frozen=True)
class Technique:
    """A way to make a memory of demonstrations; a subclass overrides its differences from Deep-Thinking.

    `name` is the name in `--technique` and in rows, as in `repeat-5`. With a `parameter`, such as R, the name ends in
    the `number`, from `smallest` to `largest`. A technique with `other_words` writes other words for the labels: its
    rows are compared with their own T = 1, the rows of all others with plain in-context learning.
    """

    summary: ClassVar[str]
    source: ClassVar[str]
    cost: ClassVar[str] = "as for Deep-Thinking"
    parameter: ClassVar[str | None] = None
    smallest: ClassVar[int] = 2
    largest: ClassVar[int] = 9999
    other_words: ClassVar[bool] = False

    name: str
    number: int = 1

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations as they are read; raises InputError if they cannot be changed."""
        return demonstrations

    @property
    def option(self) -> Problem:
        """The option `--technique` with this technique, for messages."""
        return Problem.of("technique", self.name)

    @property
    def family(self) -> str:
        """The name with the parameter in place of the number, as in `repeat-R`."""
        return self.name if self.parameter is None else f"{self.name.rpartition('-')[0]}-{self.parameter}"

    @property
    def copies(self) -> int:
        """The number of copies of every demonstration in one context."""
        return 1

    @property
    def members(self) -> int:
        """The number of memories, whose log-probabilities are averaged; only runs can have several."""
        return 1

    def sets(self, demonstrations: DemonstrationSet) -> Iterator[DemonstrationSet]:
        """The demonstrations of each member; raises as `change`."""
        yield self.change(demonstrations)

    def check(self, spec: ModelSpec, demonstrations: TokenizedDemonstrations, tell: Tell = silent) -> None:
        """Raise InputError if the technique does not work for the model or the demonstrations; needs no weights."""
        return None

    def recorded(self, words: Mapping[str, str] | None = None) -> RecordedTechnique | None:
        """The record in a memory and a row, with the words that were read for labels; None for Deep-Thinking."""
        return RecordedTechnique(self.name, words=dict(words or {}))


class Training(Protocol):
    """The training of one memory. The same model, demonstrations, parameters and machine lead to the same bytes."""

    memory: Memory

    def __iter__(self) -> Iterator[float]:
        """Do all steps; yields the loss before each step."""
        ...


@dataclass(frozen=True)
class Trained(Technique, ABC):
    """A technique that trains the memory of one reading by gradients; T and the update rule have no meaning.

    Its parameters are `steps`, `lr` and any other fields, as in `ct-kv:steps=50`; memories and rows record all of them.
    """

    steps: Annotated[int, Field(ge=1)] = 200
    lr: Annotated[float, Field(gt=0, le=1e6)] = 1e-3

    def recorded(self, words: Mapping[str, str] | None = None) -> RecordedTechnique:
        """The record in a memory and a row: the name and the parameters."""
        names = [name for name in self.__dataclass_fields__ if name not in Technique.__dataclass_fields__]
        return RecordedTechnique(self.name, {name: float(getattr(self, name)) for name in names}, dict(words or {}))

    @abstractmethod
    def training(self, engine: Engine, demonstrations: TokenizedDemonstrations) -> Training:
        """The training of a memory of these demonstrations, before its first step."""
