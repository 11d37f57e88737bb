"""The choice of the reported rows of a run: `--where`, and the limits of rows that are compared."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.experiments.results import Result, Setting
from deepthink_cli.report.arms import Arm


class RowLimits:
    """The limits of the test rows among results, by arm and task; None is all rows."""

    def __init__(self, rows: Iterable[Result]) -> None:
        self.sizes: dict[tuple[Arm, str], dict[int | None, set[int | None]]] = defaultdict(dict)
        for row in rows:
            if row.setting.part == "test":
                # Unless --choose-on dev:N says otherwise, there are as many dev rows as test rows.
                sizes = {row.setting.limit, row.n, row.n + sum(row.skipped.values())}
                self.sizes[_place(row)].setdefault(row.setting.limit, set()).update(sizes)

    def of(self, row: Result) -> tuple[int | None, ...]:
        """The limits of a row: one for a test row; several for dev rows that were scored once for several limits."""
        if row.setting.part == "test":
            return (row.setting.limit,)
        limits = self.sizes.get(_place(row), {})
        same_size = tuple(limit for limit, sizes in limits.items() if row.setting.limit in sizes)
        return same_size or tuple(limits) or (None,)

    @property
    def are_several(self) -> bool:
        """Whether any arm has test rows of several limits for one task."""
        return any(len(limits) > 1 for limits in self.sizes.values())


def _place(row: Result) -> tuple[Arm, str]:
    return Arm.of(row.setting), row.setting.task


FIELDS = tuple(field.name for field in fields(Setting))
SHOWN = 10  # values that a message lists


def conditions(texts: Sequence[str]) -> dict[str, list[str]]:
    """The values of each field in texts of the form `FIELD=VALUE`.

    Raises InputError with a line for each text without `=` and each unknown field.
    """
    problems, values = Problems(), dict[str, list[str]]()
    for text in texts:
        with problems.collected():
            name, equals, value = text.partition("=")
            if not equals:
                raise InputError.of("where", text, "write FIELD=VALUE, as in eta=0.1")
            field = name.strip().replace("-", "_")
            if field not in FIELDS:
                close = difflib.get_close_matches(field, FIELDS, n=1)
                hint = f"did you mean {close[0]}?" if close else f"the fields are {', '.join(FIELDS)}"
                raise InputError.of("where", text, f"a setting has no field {field!r}; {hint}")
            values.setdefault(field, []).append(value.strip())
    problems.raise_any()
    return values


def select(rows: Sequence[Result], wanted: Mapping[str, Sequence[str]]) -> list[Result]:
    """The rows that have, in every field of `wanted`, one of its values.

    The `limit` of dev rows is the limit of their test rows. Raises InputError for each value that no row has, with the
    existing values, and if no row has one of the values in every field.
    """
    problems, limits = Problems(), RowLimits(rows)
    selected = list(rows)
    for field, values in wanted.items():
        actual = [limits.of(row) if field == "limit" else (getattr(row.setting, field),) for row in rows]
        known = list(dict.fromkeys(value for of_row in actual for value in of_row))
        for value in values:
            with problems.collected():
                _check_present(field, value, known)
        accepted = {each for each in known if any(_equal(each, value) for value in values)}
        having = {id(row) for row, of_row in zip(rows, actual, strict=True) if accepted.intersection(of_row)}
        selected = [row for row in selected if id(row) in having]
    problems.raise_any()
    if not selected:
        named = " ".join(f"{option('where')} {field}={value}" for field, values in wanted.items() for value in values)
        raise InputError(f"{named}: there are rows with each of these values, but none with all; omit one")
    return selected


def _check_present(field: str, value: str, known: Sequence[object]) -> None:
    if not any(_equal(each, value) for each in known):
        names = list(map(_text, known))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise InputError.of("where", f"{field}={value}", f"no row has it; {field} is {', '.join(names[:SHOWN])}{more}")


def _equal(actual: object, value: str) -> bool:
    if isinstance(actual, int | float) and not isinstance(actual, bool):
        try:
            return float(value) == actual
        except ValueError:
            return False
    return value == _text(actual)


def _text(value: object) -> str:
    """A value of a setting as it is written after `=`: `none` if it is not set."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
