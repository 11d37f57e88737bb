"""The rows of runs that a report shows, grouped by job: all iterations of one model, task, seed and update rule."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import total_ordering
from pathlib import Path
from typing import Any, TypeVar

from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.experiments.results import FILE, Part, Result, Setting, grouped, read_results
from deepthink_cli.experiments.same_data import check_agree
from deepthink_cli.experiments.shards import with_shards
from deepthink_cli.report.arms import SPLITTING, Arm
from deepthink_cli.report.baselines import Baselines, Comparison
from deepthink_cli.tasks.catalogue import built_in


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


def _place(row: Result) -> tuple[Arm, str]:
    return Arm.of(row.setting), row.setting.task


FIELDS = tuple(field.name for field in fields(Setting))
SHOWN = 10  # values that a message lists


def conditions(texts: Sequence[str]) -> dict[str, list[str]]:
    """The values of each field in texts of the form `FIELD=VALUE`.

    Raises InputError with a line for each text without `=` and each unknown field.
    """
    problems, values = Problems(), dict[str, list[str]]()
    for name, value in problems.each(_condition, texts):
        values.setdefault(name, []).append(value)
    problems.raise_any()
    return values


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError.of("where", text, "write FIELD=VALUE, as in eta=0.1")
    field = name.strip().replace("-", "_")
    if field not in FIELDS:
        close = difflib.get_close_matches(field, FIELDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the fields are {', '.join(FIELDS)}"
        raise InputError.of("where", text, f"a setting has no field {field!r}; {hint}")
    return field, value.strip()


def select(rows: Sequence[Result], wanted: Mapping[str, Sequence[str]]) -> list[Result]:
    """The rows that have, in every field of `wanted`, one of its values.

    The `limit` of dev rows is the limit of their test rows. Raises InputError for each value that no row has, with the
    existing values, and if no row has one of the values in every field.
    """
    problems, limits = Problems(), RowLimits(rows)
    selected = list(rows)
    for name, values in wanted.items():
        actual = [limits.of(row) if name == "limit" else (getattr(row.setting, name),) for row in rows]
        known = list(dict.fromkeys(value for of_row in actual for value in of_row))
        for value in values:
            problems.tried(_check_present, name, value, known)
        accepted = {each for each in known if any(_equal(each, value) for value in values)}
        having = {id(row) for row, of_row in zip(rows, actual, strict=True) if accepted.intersection(of_row)}
        selected = [row for row in selected if id(row) in having]
    problems.raise_any()
    if not selected:
        named = " ".join(f"{option('where')} {name}={value}" for name, values in wanted.items() for value in values)
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


CONSTANT = ("model_sha256", "task_sha256", "split", "limit")


@total_ordering
@dataclass(frozen=True)
class Seed:
    """The seed of the demonstrations, and the seed of their order if there is one."""

    number: int
    order: int | None = None

    def __str__(self) -> str:
        return f"seed {self.number}" if self.order is None else f"seed {self.number} in order {self.order}"

    def __lt__(self, other: Seed) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[int, int]:
        return self.number, -1 if self.order is None else self.order


@dataclass
class JobResults:
    """The rows of one job by iteration, and their baselines; `dev` is empty if the run has no dev rows."""

    arm: Arm
    task: str
    groups: list[str]
    seed: Seed
    test: dict[int, Result] = field(default_factory=dict)
    dev: dict[int, Result] = field(default_factory=dict)
    baselines: dict[Part, Result] = field(default_factory=dict)

    def part(self, part: Part) -> dict[int, Result]:
        """The test rows or the dev rows."""
        return self.dev if part == "dev" else self.test

    def compared(self, iteration: int, part: Part = "test") -> Comparison:
        """The row of an iteration, which must exist, with its baseline."""
        return Comparison(self.part(part)[iteration], self.baselines.get(part))

    @property
    def demonstrations(self) -> str:
        """The digest of the demonstrations in their order."""
        return next(iter((*self.test.values(), *self.dev.values()))).demonstrations_sha256

    @property
    def widest_group(self) -> str:
        """The widest group of the task, or the task itself if it has none."""
        return self.groups[0] if self.groups else self.task


def read_jobs(runs: Sequence[Path], where: Sequence[str] = ()) -> list[JobResults]:
    """The jobs of all runs, with the rows that fulfil the conditions of `where`.

    Baselines are found among all rows. Raises InputError with a line for each folder that is not a run or has no rows,
    and as `conditions`, `select` and `jobs_of` do.
    """
    problems = Problems()
    chosen = problems.tried(conditions, where)
    results = [row for rows in problems.each(_rows, runs) for row in rows]
    problems.raise_any()
    return jobs_of(select(results, chosen), results)


def _rows(run: Path) -> list[Result]:
    """The rows of a run, or of its shards, by model, task, seed and method: workers write them in any order."""
    if not run.is_dir():
        raise InputError(f"RUN {run}: no such folder; give the folder of a deepthink run")
    places = {task: place for place, task in enumerate(built_in())}
    rows = [row for folder in with_shards([run]) for row in read_results(folder)]
    if not rows:
        raise InputError(f"RUN {run}: {FILE} has no rows yet; let the run finish a job first")
    return sorted(rows, key=lambda row: _position(row.setting, places))


def _position(setting: Setting, places: Mapping[str, int]) -> tuple[Any, ...]:
    """The place of a row: tasks by their `places` in the catalogue, or by name without a place."""
    seed = Seed(setting.seed, setting.order_seed)
    task = (places.get(setting.task, len(places)), _natural(setting.task))
    return (_natural(setting.model), *task, seed, Arm.of(setting, SPLITTING).sort_key, setting.part, setting.iteration)


def _natural(name: str) -> list[Any]:
    """A name with its numbers as numbers, so that 1.3b comes before 13b."""
    return [float(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", name))]


def jobs_of(results: Iterable[Result], among: Iterable[Result] | None = None) -> list[JobResults]:
    """Jobs in the order of their first rows; test rows of different limits belong to different jobs.

    Baselines are found `among` rows, by default the results themselves. Raises InputError if results of the same name
    come from different data, if a setting has two different results, or if one arm's rows for a task differ in a value
    that must not be averaged over.
    """
    every = list(results)
    check_agree(every)
    rows = _unique(every)
    limits = RowLimits(rows)
    splitting = _splitting(rows, limits)
    jobs: dict[tuple[Arm, str, Seed], JobResults] = {}
    for row in rows:
        setting, seed = row.setting, Seed(row.setting.seed, row.setting.order_seed)
        for limit in limits.of(row) if "limit" in splitting else (setting.limit,):
            arm = Arm.of(replace(setting, limit=limit), splitting)
            job = jobs.setdefault((arm, setting.task, seed), JobResults(arm, setting.task, row.groups, seed))
            rows_of_part = job.dev if setting.part == "dev" else job.test
            if setting.iteration in rows_of_part:
                _refuse_to_average(rows_of_part[setting.iteration], row)
            rows_of_part[setting.iteration] = row
    _check_constant(jobs.values())
    _find_baselines(jobs.values(), Baselines(every if among is None else among))
    return list(jobs.values())


def _find_baselines(jobs: Iterable[JobResults], baselines: Baselines) -> None:
    parts: tuple[Part, ...] = ("test", "dev")
    for job in jobs:
        for part in parts:
            row = next(iter(job.part(part).values()), None)
            if row is not None and (baseline := baselines.of(row)) is not None:
                job.baselines[part] = baseline


T = TypeVar("T")


def different_seeds(seeds: Iterable[T], demonstrations: Callable[[T], Hashable]) -> list[T]:
    """The seeds whose demonstrations, in their order, no earlier seed has."""
    first: dict[Hashable, T] = {}
    for seed in seeds:
        first.setdefault(demonstrations(seed), seed)
    return list(first.values())


def _unique(results: Iterable[Result]) -> list[Result]:
    """The results without duplicates."""
    by_key: dict[str, Result] = {}
    for row in results:
        if by_key.setdefault(row.key, row) != row:
            setting = row.setting
            where = f"{setting.model}, {setting.task}, seed {setting.seed}, T = {setting.iteration}"
            raise InputError(f"{where}: two different results for one setting; give one run that has it, not both")
    return list(by_key.values())


def _splitting(rows: Sequence[Result], limits: RowLimits) -> list[str]:
    """The fields of `SPLITTING` with several values for one task, also in different arms."""
    by_task = grouped((row.setting for row in rows), lambda setting: (setting.task, setting.part)).values()
    names = [name for name in SPLITTING if name != "limit"]  # dev rows have another limit
    several = [name for name in names if any(len({getattr(each, name) for each in of} - {None}) > 1 for of in by_task)]
    return [*several, *(["limit"] if any(len(of_place) > 1 for of_place in limits.sizes.values()) else [])]


def _refuse_to_average(first: Result, second: Result) -> None:
    names = [name for name in CONSTANT if getattr(first.setting, name) != getattr(second.setting, name)]
    values = "; ".join(f"{name} {getattr(first.setting, name)} and {getattr(second.setting, name)}" for name in names)
    part = "dev" if first.setting.part == "dev" else "test"
    raise InputError(
        f"{first.setting.task}: its {part} rows differ ({values}) and cannot be averaged; choose some of "
        f"them with {option('where')}, or run them into folders of their own"
    )


def _check_constant(jobs: Collection[JobResults]) -> None:
    first: dict[tuple[Arm, str, str, str], object] = {}
    for job in jobs:
        for row in (*job.test.values(), *job.dev.values()):
            for name in CONSTANT:
                value = getattr(row.setting, name)
                expected = first.setdefault((job.arm, job.task, row.setting.part, name), value)
                if expected != value:
                    raise InputError(
                        f"{job.task}: rows of {job.arm.model} differ in {name} ({expected}, {value}) and cannot be "
                        f"averaged; choose some of them with {option('where')}, or report their runs one at a time"
                    )
