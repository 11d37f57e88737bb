"""The single declaration of an option: a field of a pydantic model with its type, default, constraints and help.

The declaration gives the option of the command line, its variable, its place in configuration files, the field of a
study, the argument of the harness and of Python, and the messages about its values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model

from deepthink_cli.errors import InputError, Problem, Problems, option
from deepthink_cli.io.records import reason
from deepthink_cli.io.text import printable

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

# Headings of the options in help.
MODEL, METHOD, DATA, OUTPUT, GENERATION = "Model", "Method", "Data", "Output", "Generation"
MACHINES = "Machines"


@dataclass(frozen=True)
class Flag:
    """The properties of an option beside the type, the default and the constraints of its field.

    `name` is the option's name if it differs from the field's, and `short` its short form, as in `-m`. `hint` describes
    the possible values in messages, if the constraint's own words do not. `names` returns the only values, which help
    shows; a text is the place of the function. With `several`, the option may be given several times. Without
    `variable`, no variable of the environment sets it. Without `default`, the default is not shown, since the help
    describes it; a text is shown in its place, and has the same effect if it is typed. `callback` is called with the
    parsed value; with `eager`, before the callbacks of other options.
    """

    panel: str
    help: str
    metavar: str | None = None
    name: str = ""
    short: str = ""
    hint: str = ""
    names: Callable[[], Collection[str]] | str = ""
    several: bool = False
    variable: bool = True
    default: bool | str = True
    callback: Callable[..., Any] | None = None
    eager: bool = False


def flag_of(field: FieldInfo) -> Flag | None:
    """The declaration of a field as an option; None if it is not an option."""
    return next((each for each in field.metadata if isinstance(each, Flag)), None)


class Options(BaseModel):
    """Base of all options: unknown names are errors, and every error names the option and its value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build the options; raises InputError with one problem for each wrong value."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise InputError(*map(cls._problem, error.errors())) from error

    @classmethod
    def option_names(cls) -> dict[str, str]:
        """The name of the option of every field."""
        flags = {name: flag_of(field) for name, field in cls.model_fields.items()}
        return {name: flag.name if flag and flag.name else name for name, flag in flags.items()}

    @classmethod
    def _problem(cls, error: Any) -> Problem:
        name = str(error["loc"][0]) if error["loc"] else "options"
        flag = flag_of(cls.model_fields[name]) if name in cls.model_fields else None
        given = ",".join(map(str, error["input"])) if isinstance(error["input"], list | tuple) else error["input"]
        return Problem((flag and flag.hint) or reason(error), cls.option_names().get(name, name), str(given))


class Joined(Options):
    """Options of objects of a registry, beside a command's own; `owners` has the names of the objects."""

    owners: ClassVar[Mapping[str, str]] = {}


def joined(name: str, models: Mapping[str, type[Options] | None]) -> type[Joined]:
    """A model with the options of several objects, by the objects' names; no option is required.

    An option is left out, with a warning, if an earlier object, or the command, has an option of the same name.
    """
    fields: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for owner, model in models.items():
        for field, info in (model.model_fields if model is not None else {}).items():
            if field in fields:
                warn_of_taken(field, owner)
                continue
            owners[field] = owner
            if info.is_required():
                kind: Any = info.annotation
                fields[field] = (Annotated[kind | None, *info.metadata], None)
            else:
                fields[field] = (info.annotation, info)
    made: type[Joined] = create_model(name, __base__=Joined, **fields)
    made.owners = owners
    return made


def warn_of_taken(name: str, where: str) -> None:
    """Warn that an option of an object is left out, since another option has its name."""
    getLogger(__name__).warning(
        "%s", printable(f"warning: the option {name!r} of {where} is not used: the name is taken")
    )


def own_options(model: type[Options] | None, given: Mapping[str, Any], chosen: str, choices: Mapping[str, Any]) -> Any:
    """The options of the chosen object among all `given` options; None if it has no options.

    `chosen` is the option that names the object, as typed. `choices` are the options of each object, by its typed name.
    Raises InputError for an option of another object, and for a required option that is missing.
    """
    fields = {} if model is None else model.model_fields
    problems = Problems()
    for name, value in given.items():
        if name not in fields:
            takers = [other for other, each in choices.items() if each is not None and name in each.model_fields]
            problems.add(Problem.of(name, value, f"only with {' or '.join(takers)}; omit it"))
    for name, info in fields.items():
        if info.is_required() and name not in given:
            flag = flag_of(info)
            problems.add(f"{chosen} needs {option(name)} {flag.hint if flag else ''}".rstrip())
    problems.raise_any()
    return None if model is None else model.checked(**given)


def named_by(check: Callable[[str], object]) -> AfterValidator:
    """A validator that refuses a name that `check` does not know, with the reason of `check`."""

    def known(name: str) -> str:
        try:
            check(name)
        except InputError as error:
            raise ValueError(error.problems[0].reason) from error
        return name

    return AfterValidator(known)


def chosen_iterations(field: str, choice: str, last: int) -> tuple[int, ...]:
    """The iterations that `choice` lists, in order, or all; raises InputError for an iteration beyond 1 to `last`."""
    if choice == "all":
        return tuple(range(1, last + 1))
    chosen = tuple(sorted({int(part) for part in choice.split(",")}))
    if chosen[0] < 1 or chosen[-1] > last:
        raise InputError.of(
            field, choice, f"iterations run from 1 to {last}; raise {option('iterations')} or name others"
        )
    return chosen


TokensName = Literal["prompt", "parts"]  # the texts that are tokenised: whole prompts, or their parts
TokenIds = Annotated[
    TokensName,
    Flag(
        DATA,
        "Token ids of the whole prompt, or of its parts, demonstrations and query, alone, as in the official code.",
        hint="use prompt or parts",
    ),
]
