"""How new tokens are chosen, and where a generated text ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from deepthink_cli.options import Options

Finish = Literal["end", "stop", "length"]  # the model's own end of text, a stop string, or as many tokens as allowed


class Decoding(Options):
    """How texts are generated: greedily (temperature 0) or sampled, and where they end.

    `top_p` is the probability mass of the most likely tokens that are sampled from. `stop` are strings at which a text
    ends, excluded from it. Input n is sampled with the random numbers of seed `seed` + n, in whatever batch it runs.
    """

    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_new_tokens: int = Field(256, ge=1)
    stop: tuple[str, ...] = ()
    seed: int = Field(0, ge=0, lt=2**62)

    ways_out: ClassVar[Mapping[str, str]] = {
        "temperature": "a number, 0 (the most likely token each time) or more",
        "top_p": "a probability above 0 and up to 1, as in 0.9",
        "max_new_tokens": "a number of tokens, 1 or more",
        "seed": "a whole number, 0 or more",
    }

    @field_validator("stop", mode="before")
    @classmethod
    def _several(cls, stop: Any) -> Any:
        return () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if not all(stop):
            raise ValueError("a stop string must not be empty; omit it")
        return stop


@dataclass(frozen=True)
class Prompt:
    """Token ids to continue, and the seed of the random numbers that choose their new tokens.

    `where` names the prompt in messages.
    """

    ids: tuple[int, ...]
    seed: int = 0
    where: str = ""


@dataclass(frozen=True)
class NewToken:
    """A generated token of the prompt at `place`; `finish` says why it is the last one, or is None.

    A token that ends the text of its own (`end`) is not part of the text.
    """

    place: int
    id: int
    finish: Finish | None = None
