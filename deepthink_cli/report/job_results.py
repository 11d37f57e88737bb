"""The rows of runs that a report shows, grouped by job, each job with its baseline.

A job has all iterations of one model, task, seed and update rule. Its baseline is the result at T = 1 of the same
demonstrations, on the inputs that both have scored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar, get_args

from deepthink_cli.errors import InputError, Problem, Problems, option
from deepthink_cli.experiments.folder import with_shards
from deepthink_cli.experiments.results import FILE, Part, Result, Setting, check_same_data, grouped, read_results
from deepthink_cli.io.text import nearest
from deepthink_cli.report.arms import READING, SPLITTING, Arm, is_rival
from deepthink_cli.tasks.catalogue import built_in
from deepthink_cli.techniques.registry import find_recorded

FIELDS = tuple(field.name for field in fields(Setting))
SHOWN = 10  # values that a message lists


def conditions(texts: Sequence[str]) -> dict[str, list[str]]:
    """The values of each field in texts of the form `FIELD=VALUE`.

    Raises InputError with a line for each text without `=` and each unknown field.
    """
    problems, values = Problems(), dict[str, list[str]]()
    for text in texts:
        name, equals, value = text.partition("=")
        field = name.strip().replace("-", "_")
        if not equals:
            problems.add(Problem.of("where", text, "write FIELD=VALUE, as in eta=0.1"))
        elif field not in FIELDS:
            near = nearest(field, FIELDS)
            hint = f"the fields are {', '.join(FIELDS)}" if near is None else f"did you mean {near}?"
            problems.add(Problem.of("where", text, f"a setting has no field {field!r}; {hint}"))
        else:
            values.setdefault(field, []).append(value.strip())
    problems.raise_any()
    return values


def select(rows: Sequence[Result], wanted: Mapping[str, Sequence[str]]) -> list[Result]:
    """The rows that have, in every field of `wanted`, one of its values.

    Raises InputError for each value that no row has, with the existing values, and if no row has one of the values in
    every field.
    """
    problems, selected = Problems(), list(rows)
    for name, values in wanted.items():
        known = list(dict.fromkeys(getattr(row.setting, name) for row in rows))
        for value in values:
            if not any(_equal(each, value) for each in known):
                more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
                reason = f"no row has it; {name} is {', '.join(map(_text, known[:SHOWN]))}{more}"
                problems.add(Problem.of("where", f"{name}={value}", reason))
        accepted = {each for each in known if any(_equal(each, value) for value in values)}
        selected = [row for row in selected if getattr(row.setting, name) in accepted]
    problems.raise_any()
    if not selected:
        named = " ".join(f"{option('where')} {name}={value}" for name, values in wanted.items() for value in values)
        raise InputError(f"{named}: there are rows with each of these values, but none with all; omit one")
    return selected


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


def baselines_among(rows: Iterable[Result]) -> dict[Setting, list[Result]]:
    """The rows that are baselines, by what a row and its baseline have in common.

    The baseline of Deep-Thinking, and of techniques that change the labels, is their own T = 1. The baseline of other
    techniques is plain in-context learning with the same demonstrations. Fields that affect only further readings, such
    as eta, do not distinguish baselines.
    """
    plain = [row for row in rows if row.setting.iteration == 1 and not is_rival(row.setting.technique)]
    return grouped(plain, lambda row: _compared_with(row.setting))


def baseline_of(row: Result, baselines: Mapping[Setting, Sequence[Result]]) -> Result | None:
    """The baseline of a row; None if there is none with the same demonstrations and inputs.

    Of several, the first with the row's own positions and update rule.
    """

    def distance(each: Result) -> list[bool]:
        return [getattr(each.setting, name) != getattr(row.setting, name) for name in READING]

    others = baselines.get(_compared_with(row.setting), ())
    return min((each for each in others if _agree(row, each)), key=distance, default=None)


@dataclass(frozen=True)
class Comparison:
    """A result and its baseline, or None."""

    result: Result
    baseline: Result | None

    @cached_property
    def answers(self) -> tuple[list[bool], list[bool]] | None:
        """Whether the baseline and the result are right, for every input that both have; None without a baseline."""
        if self.baseline is None:
            return None
        baseline, result = on_common_inputs([self.baseline, self.result])
        return baseline, result

    @property
    def plain(self) -> float | None:
        """The accuracy of the baseline."""
        if self.answers is None or self.baseline is None:
            return None
        return _share(self.answers[0], self.baseline)

    @property
    def thinking(self) -> float:
        """The accuracy of the result."""
        return self.result.accuracy if self.answers is None else _share(self.answers[1], self.result)


def mean_plain(comparisons: Sequence[Comparison]) -> float | None:
    """The accuracy of the baselines, the mean over tasks; None if one is missing."""
    known = [each.plain for each in comparisons if each.plain is not None]
    return fmean(known) if len(known) == len(comparisons) else None


def on_common_inputs(results: Sequence[Result]) -> list[list[bool]]:
    """Whether each result on the same rows is right, for every input that all of them have."""
    if len({tuple(each.unscored) for each in results}) == 1:
        return [each.was_right() for each in results]
    left_out, answers = {place for each in results for place in each.unscored}, []
    for each in results:
        unscored = set(each.unscored)
        places = (place for place in range(each.n + len(unscored)) if place not in unscored)
        answers.append([right for place, right in zip(places, each.was_right(), strict=True) if place not in left_out])
    return answers


def _share(answers: Sequence[bool], whole: Result) -> float:
    return whole.accuracy if len(answers) == whole.n else sum(answers) / len(answers)


def _compared_with(setting: Setting) -> Setting:
    """The setting without its digests, and without the fields that may differ between a row and its baseline."""
    return replace(
        setting,
        technique=None if is_rival(setting.technique) else setting.technique,
        iteration=1,
        positions="",
        momentum=0.0,
        eta=0.0,
        update=None,
        demonstrations_sha256=None,
        rows_sha256=None,
        labelled_sha256=None,
        weights_sha256=None,
    )


def _agree(row: Result, baseline: Result) -> bool:
    """Whether two rows have the same demonstrations, inputs, labelled rows and weights."""
    technique, digests = row.setting.technique, ("rows_sha256", "labelled_sha256", "weights_sha256")
    if any(getattr(row.setting, name) != getattr(baseline.setting, name) for name in digests):
        return False
    if not is_rival(technique):
        return row.demonstrations_sha256 == baseline.demonstrations_sha256
    found = find_recorded(technique)
    if row.plain_sha256 is None and found is not None and found.copies > 1:  # rows of Table 1 have none
        return min(row.shots_used, row.setting.shots) == baseline.shots_used
    return (row.plain_sha256 or row.demonstrations_sha256) == baseline.demonstrations_sha256


PARTS: tuple[Part, ...] = get_args(Part)
CONSTANT = ("model_sha256", "task_sha256", "split", "limit")


class Seed(NamedTuple):
    """The seed of the demonstrations, and the seed of their order; -1 for the task's own order."""

    number: int
    order: int

    @classmethod
    def of(cls, setting: Setting) -> Seed:
        """The seeds of a row."""
        return cls(setting.seed, -1 if setting.order_seed is None else setting.order_seed)

    def __str__(self) -> str:
        return f"seed {self.number}" if self.order < 0 else f"seed {self.number} in order {self.order}"


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
    seed = Seed.of(setting)
    task = (places.get(setting.task, len(places)), _natural(setting.task))
    return (_natural(setting.model), *task, seed, Arm.of(setting, SPLITTING).sort_key, setting.part, setting.iteration)


def _natural(name: str) -> list[Any]:
    """A name with its numbers as numbers, so that 1.3b comes before 13b."""
    return [float(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", name))]


def jobs_of(results: Iterable[Result], among: Iterable[Result] | None = None) -> list[JobResults]:
    """Jobs in the order of their first rows.

    Baselines are found `among` rows, by default the results themselves. Raises InputError if results of the same name
    come from different data, if a setting has two different results, or if one arm's rows for a task differ in a value
    that must not be averaged over.
    """
    every = list(results)
    check_same_data(every)
    rows = _unique(every)
    of_tasks = grouped((row.setting for row in rows), lambda setting: (setting.task, setting.part)).values()
    splitting = [
        name for name in SPLITTING if any(len({getattr(each, name) for each in of} - {None}) > 1 for of in of_tasks)
    ]  # also if different arms have the values
    jobs: dict[tuple[Arm, str, Seed], JobResults] = {}
    constant: dict[tuple[Arm, str, Part], Setting] = {}
    for row in rows:
        setting, seed = row.setting, Seed.of(row.setting)
        arm = Arm.of(setting, splitting)
        job = jobs.setdefault((arm, setting.task, seed), JobResults(arm, setting.task, row.groups, seed))
        expected = constant.setdefault((arm, setting.task, setting.part), setting)
        for name in CONSTANT:
            if (known := getattr(expected, name)) != (value := getattr(setting, name)):
                raise InputError(
                    f"{setting.task}: rows of {setting.model} differ in {name} ({known}, {value}) and cannot be "
                    f"averaged; choose some of them with {option('where')}, or report their runs one at a time"
                )
        job.part(setting.part)[setting.iteration] = row
    baselines = baselines_among(every if among is None else among)
    for job in jobs.values():
        for part in PARTS:
            first = next(iter(job.part(part).values()), None)
            if first is not None and (baseline := baseline_of(first, baselines)) is not None:
                job.baselines[part] = baseline
    return list(jobs.values())


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
