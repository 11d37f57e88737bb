"""The judge of answers that are programs: each is run with the tests of its row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Warn
from deepthink_cli.plugins.run_code.sandbox import Program, check_confined, passes, way_to_confine, what_holds
from deepthink_cli.tasks.format import Free, found
from deepthink_cli.tasks.judges import Judge

PASSED, FAILED = "passes its tests", "fails its tests"
_COLUMN = r"\{(\w+)\}"


class ProgramJudge(Judge):
    """The tests of a program, run in confined processes."""

    summary = "the answer is a program that passes the tests of its row"
    source = "https://arxiv.org/abs/2108.07732"
    runs_code = True

    def answers(self, free: Free, gold: str, text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
        """That tests are passed, and whether they are; raises InputError for a column that the row does not have."""
        return PASSED, PASSED if passes(program_of(free, text, fields), free.seconds) else FAILED

    def confined(self) -> Note | Warn:
        """What holds on this machine; a warning unless bubblewrap confines programs."""
        kind = Note if way_to_confine() == "bubblewrap" else Warn
        return kind(f"programs are run {what_holds()}")

    def check_may_run(self) -> None:
        """Raise InputError on systems without process limits, and for root if these are all."""
        check_confined()


PROGRAM = ProgramJudge()


def program_of(free: Free, text: str, fields: Mapping[str, Any]) -> Program:
    """The program that tests a generated answer: the answer with columns of its row.

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


def _lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)
