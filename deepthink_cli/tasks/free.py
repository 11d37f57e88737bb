"""Find the answer in a generated text and compare it with the true one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deepthink_cli.errors import InputError, option
from deepthink_cli.plugins.run_code.sandbox import Program, check_confined
from deepthink_cli.tasks.format import Free, Task
from deepthink_cli.tasks.patterns import all_matches

_COLUMN = r"\{(\w+)\}"
_PUNCTUATION = r"[.,;:!?\"'`*$]+(?=\s|$)|(?<!\S)[\"'`*$]+"


def found(pattern: str, text: str) -> str | None:
    """The first group of a pattern's last match in a text, without spaces around it; None without a match."""
    matches = all_matches(pattern, text)
    return (matches[-1][1] or "").strip() if matches else None


def true_answer(free: Free, gold: str) -> str:
    """What is compared of the text of the answer column."""
    answer = gold if free.gold is None else found(free.gold, gold)
    return _compared(free, answer or "")


def given_answer(free: Free, text: str) -> str:
    """What is compared of a generated text; empty if no answer is found in it."""
    answer = text.strip() if free.extract is None else found(free.extract, text)
    return _compared(free, answer or "")


def program_of(free: Free, text: str, fields: Mapping[str, Any]) -> Program:
    """The program whose tests decide whether a generated text is right: the answer with columns of its row.

    Items of a list column are lines. Raises InputError for a column that the row does not have.
    """
    assert free.program is not None
    answer = text if free.extract is None else found(free.extract, text) or text
    values = {name: _lines(value) for name, value in fields.items()}

    def filled(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise InputError(f"free: program: the row has no column {match[1]!r}; it has {', '.join(fields)}")
        return values[match[1]]

    before, _, tests = free.program.partition("{answer}")
    return Program(re.sub(_COLUMN, filled, before), answer, re.sub(_COLUMN, filled, tests))


def runs_programs(task: Task) -> bool:
    """Whether a task's answers are programs."""
    return task.free is not None and task.free.program is not None


def check_may_run(task: Task, run_code: bool, unsafe: bool) -> None:
    """Raise InputError for a task whose answers are programs, unless they may be run, and can be confined.

    For root the limits of a process are not enough, except with `unsafe`.
    """
    if not runs_programs(task):
        return
    if not run_code:
        raise InputError(
            f"task {task.name}: its answers are programs, which are run to test them; {option('run_code')} "
            "runs them, confined as docs/tasks.md says"
        )
    check_confined(unsafe)


def _compared(free: Free, answer: str) -> str:
    if "case" in free.ignore:
        answer = answer.lower()
    if "commas" in free.ignore:  # as in 1,000
        answer = answer.replace(",", "")
    if "punctuation" in free.ignore:
        answer = re.sub(_PUNCTUATION, "", answer)
    return "".join(answer.split()) if "space" in free.ignore else " ".join(answer.split())


def _lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)
