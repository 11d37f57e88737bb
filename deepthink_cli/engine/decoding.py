"""The options of decoding: the choice of new tokens, and the end of a generated text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from deepthink_cli.options import GENERATION, Flag, Options

Finish = Literal["end", "stop", "length"]  # the model's own end of text, a stop string, or as many tokens as allowed
_LARGEST_SEED: int = 2**62


class Decoding(Options):
    """Greedy decoding (temperature 0) or sampling, and the end of a text.

    Tokens are sampled from the most likely tokens with a probability mass of `top_p`. A text ends before a string of
    `stop`; None stands for the text that follows an answer among the demonstrations, if there are any. Input n is
    sampled with seed `seed` + n, in whatever batch it runs.
    """

    temperature: Annotated[
        float,
        Field(ge=0),
        Flag(
            GENERATION,
            "0 chooses the most likely token each time; above 0, tokens are drawn from softmax(logits / X).",
            "X",
            hint="a number, 0 (the most likely token each time) or more",
        ),
    ] = 0.0
    top_p: Annotated[
        float,
        Field(gt=0, le=1),
        Flag(
            GENERATION,
            "Draw from the most likely tokens, whose probabilities sum up to P.",
            "P",
            hint="a probability above 0 and up to 1, as in 0.9",
        ),
    ] = 1.0
    max_new_tokens: Annotated[
        int,
        Field(ge=1),
        Flag(GENERATION, "Maximum number of tokens of an answer.", "N", hint="a number of tokens, 1 or more"),
    ] = 256
    stop: Annotated[
        tuple[str, ...] | None,
        Flag(
            GENERATION,
            r"End an answer before this text (\n is a line break); give it several times for several, '' for none. "
            "Default: what follows an answer among the demonstrations.",
            "TEXT",
            several=True,
        ),
    ] = None
    seed: Annotated[
        int,
        Field(ge=0, le=_LARGEST_SEED),
        Flag(GENERATION, "Seed of drawn tokens; input n uses S + n.", "S", hint="a whole number, 0 or more"),
    ] = 0

    @field_validator("stop", mode="before")
    @classmethod
    def _several(cls, stop: Any) -> Any:
        return (stop,) if isinstance(stop, str) else stop

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, stop: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if not all(stop or ()):
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
    """A generated token of the prompt at `place`; `finish` is the reason why the text ends here, or None.

    The model's own end of text (`end`) is not part of the text.
    """

    place: int
    id: int
    finish: Finish | None = None
