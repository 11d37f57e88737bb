"""The judges of free answers by name, as a task's `free: {judge: NAME}` gives them; exact match is the core's own."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, Warn
from deepthink_cli.registry import Registry, instance_of
from deepthink_cli.tasks.format import EXACT, PROGRAM, Free, Task, found


class Judge(ABC):
    """The judge of generated answers; a judge with `runs_code` runs answers, which users must allow."""

    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""
    runs_code: ClassVar[bool] = False

    @abstractmethod
    def answers(self, free: Free, gold: str, text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
        """The true answer and the given answer: a generated `text` is right if they are equal.

        `gold` is the text of the answer column, and `fields` are the columns of the row. Raises InputError for a row
        that cannot be judged.
        """

    def confined(self) -> Note | Warn | None:
        """The confinement of answers that are run here, as a warning unless it is complete; None if none is run."""
        return None

    def check_may_run(self) -> None:
        """Raise InputError if this machine cannot confine the answers that are run."""
        return None


class ExactMatch(Judge):
    """Exact match of the answer that is found in the text."""

    summary = "the answer found in the text is the true one"
    source = "https://arxiv.org/abs/2110.14168"

    def answers(self, free: Free, gold: str, text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
        """The compared parts of the answer column and of the text, by the task's patterns; empty without an answer."""
        true = gold if free.gold is None else found(free.gold, gold)
        given = text.strip() if free.extract is None else found(free.extract, text)
        return _compared(free, true or ""), _compared(free, given or "")


_PUNCTUATION = r"[.,;:!?\"'`*$]+(?=\s|$)|(?<!\S)[\"'`*$]+"


def _compared(free: Free, answer: str) -> str:
    if "case" in free.ignore:
        answer = answer.lower()
    if "commas" in free.ignore:  # as in 1,000
        answer = answer.replace(",", "")
    if "punctuation" in free.ignore:
        answer = re.sub(_PUNCTUATION, "", answer)
    return "".join(answer.split()) if "space" in free.ignore else " ".join(answer.split())


JUDGES: Registry[Judge] = Registry("judges", {EXACT: ExactMatch()}, instance_of(Judge))  # type: ignore[type-abstract]


def judge_of(free: Free, where: str = "free") -> Judge:
    """The judge of a task's answers; raises InputError, which names the task by `where`, if it is not installed."""
    name = free.judge or (EXACT if free.program is None else PROGRAM)
    if name not in JUDGES:
        known = ", ".join(JUDGES)
        raise InputError(f"{where}: its answers need the judge {name!r}, which is not installed; there is {known}")
    return JUDGES[name]


def check_may_run(task: Task, run_code: bool) -> None:
    """Raise InputError for a task whose answers are run, unless they may be run and can be confined.

    Also raises InputError for a task whose judge is not installed.
    """
    if task.free is None:
        return
    judge = judge_of(task.free, f"task {task.name}")
    if not judge.runs_code:
        return
    if not run_code:
        raise InputError(
            f"task {task.name}: its answers are programs, which are run to test them; {option('run_code')} "
            "runs them, confined as docs/tasks.md says"
        )
    judge.check_may_run()


def tell_of_programs(tasks: Sequence[Task], tell: Tell) -> None:
    """Tell the confinement of the tasks' programs, before one runs: a warning unless it is complete."""
    names: dict[Judge, list[str]] = {}
    for task in tasks:
        if task.free is not None:
            names.setdefault(judge_of(task.free), []).append(task.name)
    for judge, judged in names.items():
        if said := judge.confined():
            tell(replace(said, text=f"task {', '.join(judged)}: {said.text}"))
