"""The options of the method, the model and a run, and their validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from deepthink_cli.errors import InputError
from deepthink_cli.io.mistakes import reason

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


def named_by(check: Callable[[str], object]) -> AfterValidator:
    """Refuses a name that `check` does not know, with its message less the option that the message begins with."""

    def known(name: str) -> str:
        try:
            check(name)
        except InputError as error:
            raise ValueError(error.messages[0].partition(": ")[2]) from error
        return name

    return AfterValidator(known)


def chosen_iterations(option: str, choice: str, last: int) -> tuple[int, ...]:
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
