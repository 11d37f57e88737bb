"""The rows of runs, put together again into jobs: one model, one task, one seed, one gate; every iteration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from deepthink_cli.errors import InputError
from deepthink_cli.runs.results import Result, Setting
from deepthink_cli.runs.same_data import check_agree

Seed = tuple[int, int | None]  # (seed, order_seed)


@dataclass(frozen=True)
class Arm:
    """What is compared with what: everything about a job but its task and its seed.

    `eta` is None where it was chosen on a dev set. `sampling` and `shots` are set only where one task
    has several; tasks may well have different numbers of demonstrations within an arm.
    """

    model: str
    dtype: str
    quantize: str | None
    protocol: str
    positions: str
    momentum: float
    eta: float | None
    sampling: str | None = None
    shots: int | None = None

    @property
    def family(self) -> Arm:
        """The same with eta left open."""
        return replace(self, eta=None)


FIELDS = tuple(Arm.__dataclass_fields__)
SPLITTING = ("sampling", "shots")
CONSTANT = ("model_sha256", "task_sha256", "split", "limit")


@dataclass
class JobResults:
    """The rows of one job by iteration; `dev` is empty where T was not to be chosen."""

    arm: Arm
    task: str
    groups: list[str]
    seed: Seed
    test: dict[int, Result] = field(default_factory=dict)
    dev: dict[int, Result] = field(default_factory=dict)


def jobs_of(results: Iterable[Result]) -> list[JobResults]:
    """Jobs in the order of their first rows.

    Raises InputError where results of the same name come from different data, where a setting has two
    different results, or where one arm's rows for a task differ in a value that must not be averaged over.
    """
    given = list(results)
    check_agree(given)
    rows = _unique(given)
    splitting = _splitting(rows)
    jobs: dict[tuple[Arm, str, Seed], JobResults] = {}
    for row in rows:
        own = row.setting
        arm, seed = _arm(own, splitting), (own.seed, own.order_seed)
        job = jobs.setdefault((arm, own.task, seed), JobResults(arm, own.task, row.groups, seed))
        rows_of_part = job.dev if own.part == "dev" else job.test
        if own.iteration in rows_of_part:
            _refuse_to_average(rows_of_part[own.iteration], row)
        rows_of_part[own.iteration] = row
    _check_constant(jobs.values())
    return list(jobs.values())


def varying(arms: Collection[Arm]) -> list[str]:
    """The fields in which arms differ."""
    return [name for name in FIELDS if len({getattr(arm, name) for arm in arms}) > 1]


def shared(arms: Sequence[Arm]) -> list[str]:
    """The fields worth telling in which at least one arm and all arms agree."""
    told = [name for name in FIELDS if name == "eta" or getattr(arms[0], name) is not None]
    return [name for name in told if name not in varying(arms)]


def label(arm: Arm, names: Collection[str], short: bool = False) -> str:
    """An arm in words, of the fields named; `short` leaves a model's owner or folder out."""
    model = PurePath(arm.model).name if short else arm.model
    words = {
        "model": model,
        "dtype": arm.dtype,
        "quantize": arm.quantize or "unquantized",
        "protocol": f"protocol {arm.protocol}",
        "positions": f"{arm.positions} positions",
        "momentum": f"momentum {arm.momentum:g}",
        "eta": "eta chosen on dev" if arm.eta is None else f"eta {arm.eta:g}",
        "sampling": f"{arm.sampling} sampling" if arm.sampling else "",
        "shots": f"{arm.shots} shots" if arm.shots is not None else "",
    }
    return ", ".join(words[name] for name in FIELDS if name in names and words[name])


def name_of(seed: Seed) -> str:
    """A seed for people."""
    return f"seed {seed[0]}" if seed[1] is None else f"seed {seed[0]} in order {seed[1]}"


def _unique(results: Iterable[Result]) -> list[Result]:
    """Every result once; a row of an older version, without digests, counts as the same row with them."""
    found: dict[Setting, Result] = {}
    for row in results:
        own = row.setting.without_digests
        seen = found.setdefault(own, row)
        if replace(seen, key="", setting=own) != replace(row, key="", setting=own):
            where = f"{own.model}, {own.task}, seed {own.seed}, T = {own.iteration}"
            raise InputError(f"{where}: two different results for one setting; give one run that has it, not both")
        if seen.setting.rows_sha256 is None:
            found[own] = row
    return list(found.values())


def _arm(setting: Setting, splitting: Collection[str]) -> Arm:
    return Arm(
        setting.model, setting.dtype, setting.quantize, setting.protocol, setting.positions, setting.momentum,
        setting.eta, **{name: getattr(setting, name) for name in splitting},
    )  # fmt: skip


def _splitting(rows: Sequence[Result]) -> list[str]:
    """Which of `SPLITTING` take several values for one arm and task."""
    found = []
    for name in SPLITTING:
        first: dict[tuple[Arm, str, str], object] = {}
        for row in rows:
            own = row.setting
            value = getattr(own, name)
            if first.setdefault((_arm(own, ()), own.task, own.part), value) != value:
                found.append(name)
                break
    return found


def _refuse_to_average(one: Result, two: Result) -> None:
    names = [name for name in CONSTANT if getattr(one.setting, name) != getattr(two.setting, name)]
    values = "; ".join(f"{name} {getattr(one.setting, name)} and {getattr(two.setting, name)}" for name in names)
    raise InputError(
        f"{one.setting.task}: its rows differ ({values}) and cannot be averaged; run them into folders of their own"
    )


def _check_constant(jobs: Iterable[JobResults]) -> None:
    first: dict[tuple[Arm, str, str, str], object] = {}
    for job in jobs:
        for row in (*job.test.values(), *job.dev.values()):
            for name in CONSTANT:
                value = getattr(row.setting, name)
                seen = first.setdefault((job.arm, job.task, row.setting.part, name), value)
                if seen != value:
                    raise InputError(
                        f"{job.task}: rows of {job.arm.model} differ in {name} ({seen}, {value}) and cannot be "
                        "averaged; report their runs one at a time"
                    )
