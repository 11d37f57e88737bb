"""Commands whose parameters are groups of options: typer sees single options, the command receives groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from deepthink_cli.cli.names import flag as typed
from deepthink_cli.cli.names import variable
from deepthink_cli.meaning import sentence
from deepthink_cli.options import Flag, Joined, Options, flag_of, warn_of_taken
from deepthink_cli.registry import loaded

T = TypeVar("T", bound=Options)


@dataclass(frozen=True)
class Given(Generic[T]):
    """The options of a model as they were typed: texts by field, and None for options that were not given."""

    kind: type[T]
    values: Mapping[str, Any]

    def __getattr__(self, field: str) -> Any:
        try:
            return self.values[field]
        except KeyError:
            raise AttributeError(field) from None

    def but(self, **values: Any) -> Given[T]:
        """The same with other values."""
        return replace(self, values={**self.values, **values})

    @property
    def changed(self) -> dict[str, Any]:
        """The values that differ from the defaults."""
        defaults = {name: default_text(field) for name, field in self.kind.model_fields.items()}
        return {name: value for name, value in self.values.items() if value is not None and value != defaults[name]}

    def checked(self, **values: Any) -> T:
        """The validated options, also with `values`; raises InputError for each wrong value."""
        return self.kind.checked(**self.changed, **values)


class Without:
    """Options of a group that a command does not have, as in `Annotated[Group, Without("json")]`."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)


class Help:
    """A command's own help of options of a group, as in `Annotated[Group, Help(model="...")]`."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter of `command` that is a group by its options, in their order.

    A group is a model of options: `Given[Model]` arrives as it was typed, `Model` is checked first. Options in
    `Without` are left out, and have their defaults. The command's attribute `conditions` says where its options have no
    meaning.
    Raises TypeError for a name that the group does not have, ValueError if two parameters share a name.
    """
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Any, dict[str, str]]] = {}  # the group, and its fields by the names of their options
    hints = get_type_hints(command, include_extras=True)
    for parameter in sorted(signature(command).parameters.values(), key=lambda each: _is_joined(hints[each.name])):
        hint = hints[parameter.name]
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if (model := _model_of(kind)) is not None:
            options, taken = _chosen(kind, _of_model(model), notes), {each.name for each in parameters}
            if issubclass(model, Joined):
                for field in [field for field, each in options.items() if each.name in taken]:
                    warn_of_taken(options.pop(field).name, model.owners[field])
            groups[parameter.name] = kind, {option.name: field for field, option in options.items()}
            parameters += options.values()
        else:
            flag = next((note for note in notes if isinstance(note, Flag)), None)
            annotation = hint if flag is None else _annotation(flag.name or parameter.name, kind, flag)
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation))

    @wraps(command)
    def flat(**values: Any) -> None:
        built: dict[str, Any] = {}  # not in `values`: a group may have the name of one of its options
        for name, (kind, names) in groups.items():
            given = {field: values.pop(option) for option, field in names.items()}
            typed = {field: value for field, value in given.items() if value is not None}
            built[name] = Given(get_args(kind)[0], given) if get_origin(kind) is Given else kind.checked(**typed)
        command(**values, **built)

    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.conditions = {each.name: sentence(command.__name__, each.name, typed) for each in parameters}  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _is_joined(hint: Any) -> bool:
    """Whether a parameter has options of other objects, which come after the command's own."""
    model = _model_of(get_args(hint)[0] if get_origin(hint) is Annotated else hint)
    return model is not None and issubclass(model, Joined)


def _model_of(kind: Any) -> type[Options] | None:
    """The model of a group; None for another type."""
    model = get_args(kind)[0] if get_origin(kind) is Given else kind
    return model if isinstance(model, type) and issubclass(model, Options) else None


def default_text(field: FieldInfo) -> Any:
    """The default of a field as a user would type it; None if there is none, or help does not show it."""
    flag, default = flag_of(field), field.get_default()
    if flag is not None and isinstance(flag.default, str):
        return flag.default
    if field.is_required() or default in (None, (None,)) or flag is None or not flag.default:
        return None
    if isinstance(default, bool):
        return default
    if isinstance(default, tuple):
        return ",".join(map(_text, default))
    return _text(default)


def option_of(model: type[Options], field: str) -> Any:
    """An option of a model, for use in another group; it arrives as it was typed, or as None if it is not given."""
    flag = flag_of(model.model_fields[field])
    assert flag is not None
    return Annotated[str | None, replace(flag, default=False)]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _of_model(model: type[Options]) -> dict[str, Parameter]:
    """The options of a model by field."""
    options: dict[str, Parameter] = {}
    kind: Any
    for name, field in model.model_fields.items():
        if (flag := flag_of(field)) is not None:
            option, default, kind = flag.name or name, default_text(field), field.annotation
            kind = kind if default is not None else kind | None
            annotation = _annotation(option, kind, flag)
            options[name] = Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    return options


def _annotation(name: str, kind: Any, flag: Flag) -> Any:
    """A typer parameter for an option of this type.

    Numbers and lists arrive as text: the check of the model names the value, and reports all mistakes at once.
    """
    kinds = [each for each in get_args(kind) if each is not NoneType] if _is_union(kind) else [kind]
    is_choice = get_origin(kinds[0]) is Literal and flag.metavar is None
    as_it_is = kinds[0] in (bool, Path) or get_origin(kinds[0]) is list or is_choice
    plain = kinds[0] if as_it_is else str
    optional = _is_union(kind) and NoneType in get_args(kind)
    if flag.several:
        plain = list[str]
    more: dict[str, Any] = {}
    metavar = flag.metavar
    if flag.names:
        more["parser"] = _one_of(names := loaded(flag.names))
        metavar = metavar or f"[{'|'.join(names())}]"
    spelled = name.replace("_", "-")
    info = typer.Option(
        f"--{spelled}/--no-{spelled}" if plain is bool and optional else f"--{spelled}",
        *filter(None, [flag.short]),
        envvar=variable(name) if flag.variable else None,
        show_envvar=False,
        rich_help_panel=flag.panel,
        metavar=metavar,
        help=flag.help,
        callback=flag.callback,
        is_eager=flag.eager,
        **more,
    )
    return Annotated[plain | None if optional else plain, info, flag]


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _one_of(names: Callable[[], Collection[str]]) -> Callable[[str], str]:
    def parse(name: str) -> str:
        if name not in names():
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, names()))}.")
        return name

    return parse


def _chosen(group: Any, options: dict[str, Parameter], notes: list[Any]) -> dict[str, Parameter]:
    """The options of a group that a command has, with its own help."""
    omitted = frozenset(name for note in notes if isinstance(note, Without) for name in note.names)
    texts = {name: text for note in notes if isinstance(note, Help) for name, text in note.texts.items()}
    if unknown := omitted - {each.name for each in options.values()}:
        raise TypeError(f"{getattr(group, '__name__', group)} has no {', '.join(sorted(unknown))}")
    chosen = {field: each for field, each in options.items() if each.name not in omitted}
    for field, each in chosen.items():
        if each.name in texts:
            kind, info, flag = get_args(each.annotation)
            info = copy(info)
            info.help = texts[each.name]
            chosen[field] = each.replace(annotation=Annotated[kind, info, flag])
    return chosen
