"""Combinations in which options have no meaning: one table, for checks, help and messages.

A given option has an effect, or is refused. Whether it was given follows from the source of its value: a default is
never refused. T = 1 is a number of readings like any other; a gate may be given with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from deepthink_cli.calibration.registry import CALIBRATIONS, Calibration
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.registry import split_names
from deepthink_cli.selection.registry import METHODS
from deepthink_cli.techniques.base import Trained
from deepthink_cli.techniques.registry import DEEP_THINKING, TECHNIQUES, find
from deepthink_cli.updates import RULES, Gate

Values = Mapping[str, Any]  # of the options of a command by name
Condition = Callable[[Values], bool]
Shown = Callable[[str], str]

# Options of most commands: the environment or a configuration file may set them for commands that do not use them.
SHARED = ("data_dir", "json", "limit")
_GATE = tuple(each.name for each in fields(Gate))
_LABELLED = [name for name in CALIBRATIONS.own if CALIBRATIONS[name].labelled]
_OF_STATES = [name for name in _LABELLED if CALIBRATIONS[name].of_states]


@dataclass(frozen=True)
class Rule:
    """Options that have no meaning in the named commands while a condition holds.

    `text` names the condition in help and messages, and `hint` the way out; other options stand in braces.
    """

    commands: tuple[str, ...]
    options: tuple[str, ...]
    holds: Condition
    text: str
    hint: str

    def refusal(self, shown: Shown) -> str:
        """The reason and the hint, with other options as `shown` writes them."""
        return _written(f"{self.text}; {self.hint}", shown)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _has(name: str) -> Condition:
    return lambda values: not is_absent(values.get(name))


def _lacks(name: str) -> Condition:
    return lambda values: is_absent(values.get(name))


def _only_trains(values: Values) -> bool:
    """Whether every technique trains the memory."""
    names = split_names(values.get("technique")) or (DEEP_THINKING,)
    return all(isinstance(find(name.partition(":")[0]), Trained) for name in names)


def _without(parameter: str) -> Condition:
    """Whether none of the update rules has a parameter of the gate; unknown rules are refused elsewhere."""

    def holds(values: Values) -> bool:
        with suppress(KeyError, TypeError, AttributeError):
            rules = values.get("update")
            names = [rule.partition(":")[0].strip() for rule in split_names(rules) or ()]
            return bool(names) and all(parameter not in {each.name for each in fields(RULES[name])} for name in names)
        return False

    return holds


def _calibrations(values: Values) -> list[Calibration]:
    names = split_names(values.get("calibrate")) or ()
    return [CALIBRATIONS[name] for name in names if name in CALIBRATIONS]


def _averages_states(values: Values) -> bool:
    found = [find(name.partition(":")[0]) for name in split_names(values.get("technique")) or ()]
    several = any(each is not None and each.members > 1 for each in found)
    return several and any(each.of_states for each in _calibrations(values))


def _draws_nothing(values: Values) -> bool:
    """Whether the method of choice takes the same rows for every seed."""
    method = METHODS.get(values.get("demos_by") or "")
    return method is not None and not method.draws and is_absent(values.get("pool_size"))


_ADD, _OMIT_ONE = "add it, or omit this", "omit one of the two"
_TRAINING = "{technique} " + " or ".join(name for name in TECHNIQUES.own if issubclass(TECHNIQUES[name], Trained))
_TRAINED = f"not with {_TRAINING} alone, which trains the memory of one reading"
_WHOLE = ("think", "run", "study")

_CHOSEN = "not with {demos_by}, which chooses the demonstrations and their order"
_AS_THEY_ARE = "not with a file of demonstrations, which are read as they are"
_OF_A_FILE = (_has("demos"), _AS_THEY_ARE, "omit this, or the file")
_OF_THE_TASK = (_has("task"), "not with {task}, which has its own", "omit this, or write a task file")
TABLE = (
    Rule(_WHOLE, ("shots",), *_OF_A_FILE),
    Rule(("study",), ("order_seed", "sampling"), *_OF_A_FILE),
    Rule(("think",), ("seed", "protocol"), *_OF_A_FILE),
    Rule(("think",), ("shots", "seed", "protocol", "data_dir"), _lacks("task"), "only with {task} NAME", _ADD),
    Rule(("select",), ("protocol", "data_dir"), _lacks("task"), "only with {task} NAME", _ADD),
    Rule(("think", "select"), ("template", "label_field", "labels", "separator"), *_OF_THE_TASK),
    Rule(("think",), ("label_separator",), *_OF_THE_TASK),
    Rule(
        ("think", "tune"),
        ("separator",),
        _has("chat"),
        "not with {chat}, whose template separates the turns",
        _OMIT_ONE,
    ),
    Rule(
        ("think", "study"),
        ("tokens",),
        _has("chat"),
        "not with {chat}, whose template ends every turn with a token of its own",
        _OMIT_ONE,
    ),
    Rule(("think", "study", "tune"), ("system",), _lacks("chat"), "only with {chat}", _ADD),
    Rule(("run", "study"), ("demos",), _has("demos_by"), _CHOSEN, _OMIT_ONE),
    Rule(("study",), ("sampling", "order_seed"), _has("demos_by"), _CHOSEN, _OMIT_ONE),
    Rule(
        ("study",),
        ("pool_size", "balance"),
        _lacks("demos_by"),
        "only with {demos_by} NAME",
        "name a method there, or omit this",
    ),
    Rule(("tune", "sklearn"), ("demos_by",), _lacks("shots"), "only with {shots} K, the number to choose", _ADD),
    Rule(
        ("select",),
        ("seed",),
        _draws_nothing,
        "not with {demos_by} first alone, which takes the same rows for every seed",
        "omit this, or draw a pool with {pool_size}",
    ),
    Rule(("think",), ("positions", "keep"), _only_trains, _TRAINED, "omit this"),
    Rule(
        ("think",),
        ("iterations",),
        lambda values: _only_trains(values) and str(values.get("iterations", 1)).strip() != "1",
        _TRAINED,
        "omit this",
    ),
    Rule(_WHOLE, (*_GATE, "update"), _only_trains, _TRAINED, "omit this"),
    Rule(("run", "study"), ("at",), _only_trains, _TRAINED, "omit this"),
    *(
        Rule(
            (*_WHOLE, "harness"),
            (name,),
            _without(name),
            f"only with an {{update}} rule that has a parameter {name}",
            "omit one of the two",
        )
        for name in _GATE
    ),
    Rule(
        ("run", "study"),
        ("calibrate",),
        lambda values: is_absent(values.get("choose_on")) and any(each.labelled for each in _calibrations(values)),
        f"{_listed(_LABELLED)} only with {{choose_on}} dev:N, the labelled rows that they are fitted to",
        "add it, or omit them",
    ),
    Rule(
        ("run", "study"),
        ("calibrate",),
        _averages_states,
        f"{_listed(_OF_STATES)} not with {{technique}} ensemble-N, whose memories have hidden states of their own",
        "omit one of the two",
    ),
    Rule(("sklearn",), ("eta",), _has("update"), "not with {update}, which is used in its place", _OMIT_ONE),
    Rule(("calibrate",), ("limit",), _lacks("rows"), "only with ROWS", "give them, or omit this"),
    Rule(("predict",), ("json",), _lacks("dry_run"), "only with {dry_run}", _ADD),
    Rule(("predict",), ("workers", "resume", "show_prompt"), _has("dry_run"), "not with {dry_run}", _OMIT_ONE),
)


def is_absent(value: Any) -> bool:
    """Whether a value asks for nothing: None, a flag that is off, or no values but None."""
    if isinstance(value, list | tuple):
        return all(each is None for each in value)
    return value is None or value is False


def options_of(command: str) -> list[str]:
    """The options of a command that have no meaning in some combination."""
    return list(dict.fromkeys(name for each in TABLE if command in each.commands for name in each.options))


def meaningless(command: str, given: Iterable[str], values: Values) -> Iterator[tuple[str, Rule]]:
    """The given options of a command that have no meaning beside the other values, each with the first reason."""
    for name in given:
        rules = (each for each in TABLE if command in each.commands and name in each.options)
        if not is_absent(values.get(name)) and (rule := next((each for each in rules if each.holds(values)), None)):
            yield name, rule


def check_meaning(command: str, given: Iterable[str], values: Values) -> None:
    """Raise InputError with a problem for each given option that has no meaning beside the other values."""
    if problems := refusals(command, given, values):
        raise InputError(*problems)


def refusals(command: str, given: Iterable[str], values: Values) -> list[Problem]:
    """A problem for each given option that has no meaning beside the other values."""
    return [
        Problem.of(name, values[name] if values[name] is True else _text(values[name]), rule.refusal(option))
        for name, rule in meaningless(command, given, values)
    ]


def sentence(command: str, field: str, shown: Shown) -> str:
    """The conditions in which an option of a command has no meaning, as the end of its help; empty without any."""
    texts = [each.text for each in TABLE if command in each.commands and field in each.options]
    written = _written("; ".join(dict.fromkeys(texts)), shown)
    return f" {written[0].upper()}{written[1:]}." if written else ""


def _written(text: str, shown: Shown) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: shown(match[1]), text)


def _text(value: Any) -> str:
    """A value in a message, quoted if it is more than one word."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    text = str(value)
    return text if text.isprintable() and " " not in text else ascii(text)
