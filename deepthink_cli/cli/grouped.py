"""Commands whose parameters are groups of options: typer sees single options, the command receives groups."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import OptionInfo

from deepthink_cli.meaning import sentence


class Without:
    """Options of a group that a command does not have, as in `Annotated[Group, Without("json")]`."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)


class Help:
    """Help of options of a group that differs in a command, as in `Annotated[Group, Help(model="...")]`."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter of `command` that is a dataclass by the fields of the dataclass, in their order.

    Each field is an annotated typer parameter with a default. Fields that `Without` names are not options
    and keep their defaults. The help of an option ends with when it has no meaning. Raises TypeError for a name that
    the group does not have, ValueError if two parameters share a name.
    """
    parameters: list[Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    hints = get_type_hints(command, include_extras=True)
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        group, omitted, texts = _group(hint)
        if group is None:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint))
        else:
            options = [_helped(each, texts.get(each.name)) for each in _options(group, omitted)]
            groups[parameter.name] = group, [option.name for option in options]
            parameters += options
    parameters = [_helped(each, None, sentence(command.__name__, each.name)) for each in parameters]

    @wraps(command)
    def flat(**values: Any) -> None:
        built = {}  # not in `values`: a group may have the name of one of its options
        for name, (group, options) in groups.items():
            built[name] = group(**{option: values.pop(option) for option in options})
        command(**values, **built)

    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _group(hint: Any) -> tuple[type | None, frozenset[str], dict[str, str]]:
    """The group that a parameter's annotation names, if any, the options that are omitted, and other helps."""
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return None, frozenset(), {}
    omitted = frozenset(name for note in notes if isinstance(note, Without) for name in note.names)
    return kind, omitted, {name: text for note in notes if isinstance(note, Help) for name, text in note.texts.items()}


def _helped(parameter: Parameter, text: str | None, end: str = "") -> Parameter:
    """The parameter with `text` in place of the help of its option, if there is one, and `end` after it."""
    kind, *notes = get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (None,)
    if not (text or end) or not notes:
        return parameter
    helped = [copy(note) for note in notes]
    for note in helped:
        if isinstance(note, OptionInfo):
            note.help = f"{text or note.help}{end}"
    return parameter.replace(annotation=Annotated[(kind, *helped)])


def _options(group: type, omitted: frozenset[str]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    if unknown := omitted - hints.keys():
        raise TypeError(f"{group.__name__} has no {', '.join(sorted(unknown))}")
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
        if field.name not in omitted
    ]
