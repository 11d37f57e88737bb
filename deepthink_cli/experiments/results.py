"""The rows of a run: one for each (model, task, seed, eta, momentum, positions, protocol, iteration).

A row contains nothing that varies between runs, such as times: an interrupted and resumed run writes the
same bytes as an uninterrupted one. Rows made from different demonstrations or
evaluated rows have different keys.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError, with_config

from deepthink_cli.data.template import Chat
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.io.records import STRICT, place, reason
from deepthink_cli.io.text import canonical_json, json_sha256
from deepthink_cli.techniques.registry import find_recorded
from deepthink_cli.updates import Gate, UpdateRule, parse_rule

if TYPE_CHECKING:
    from deepthink_cli.scoring.prediction import Correction, Prediction

FILE = "results.jsonl"
# Fields that are absent in rows that do not use them.
OPTIONAL = (
    *("tokens", "chat", "pool_size", "balanced", "technique"),
    *("calibration", "labelled", "labelled_sha256", "scoring", "update"),
)
# Fields that do not change the key if they are None; every row that is written has all three digests.
_UNSET = ("demonstrations_sha256", "rows_sha256", "weights_sha256", *OPTIONAL)
Part = Literal["test", "dev"]
Point = tuple[Part, UpdateRule, int]  # what is scored: a part, with an update rule, at an iteration


@with_config(STRICT)
@dataclass(frozen=True)
class Setting:
    """What identifies one row; its digest is the row's key.

    `model_sha256` is the digest of the model's configuration, weights and tokenizer; `task_sha256` that
    of the task's definition. `part` is `dev` for rows that only choose T and eta, and `limit` is then the
    number of rows requested. The three digests are those of the demonstrations as the model read them, of the
    evaluated rows in order, and of every byte of the weights; a plan does not know all of them.
    `tokens` is set if the token ids are not those of the whole prompt, `chat` if the demonstrations
    are turns of a conversation; `pool_size` and `balanced` if `sampling` chose them
    from a pool with a model (`run --demos-by`); `technique` names what made the memory other than Deep-Thinking alone
    (`run --technique`), with its parameters; `calibration` is the correction of the scores; `labelled` is the number of
    dev rows requested, and `labelled_sha256` their digest, if the correction is fitted to them; `scoring` holds the
    options of scoring that do not have their defaults, as in `score=end,reread=2`; `update` is the update rule other
    than the gate of the paper, with its parameters but eta and momentum (`run --update`). The values of the gate are 0
    where a memory is trained, without an update rule.
    """

    model: str
    model_sha256: str
    dtype: str
    quantize: str | None
    task: str
    task_sha256: str
    protocol: str
    part: Part
    split: str
    limit: int | None
    sampling: str
    shots: int
    seed: int
    order_seed: int | None
    eta: float
    momentum: float
    positions: str
    iteration: int
    demonstrations_sha256: str | None = None
    rows_sha256: str | None = None
    weights_sha256: str | None = None
    tokens: Literal["parts"] | None = None
    chat: Chat | None = None
    pool_size: int | None = None
    balanced: bool | None = None
    technique: str | None = None
    calibration: str | None = None
    labelled: int | None = None
    labelled_sha256: str | None = None
    scoring: str | None = None
    update: str | None = None

    @property
    def gate(self) -> UpdateRule:
        """The update rule of this row's method; raises InputError if this installation has no such rule."""
        gate = Gate(self.eta, self.momentum)
        return gate if self.update is None else parse_rule(self.update, gate)

    @property
    def point(self) -> Point:
        """What is scored for this row."""
        return self.part, self.gate, self.iteration

    @cached_property
    def key(self) -> str:
        """Sixteen hexadecimal digits that identify this setting."""
        known = {name: value for name, value in asdict(self).items() if name not in _UNSET or value is not None}
        return json_sha256(known)[:16]


@with_config(STRICT)
@dataclass(frozen=True)
class Corrected:
    """What a correction of scores rests on: the number of texts or rows that the bias was estimated from.

    `bias` is log b of every label in nats (see `deepthink_cli.calibration`); None for a head, for the cross-validation
    of dev rows, and if inputs have their own candidates.
    """

    inputs: int
    counted: Literal["texts", "rows"]
    bias: dict[str, float] | None


@with_config(STRICT)
@dataclass(frozen=True)
class Result:
    """One row of `results.jsonl`.

    `groups` are the task's groups, widest first (`mmlu`, `mmlu/stem`); `shots_used` the demonstrations that were read,
    each as often as it was repeated; `length` is L; `skipped` counts rows that could not be scored, by reason;
    `left_out` counts training rows that may not be demonstrations, by reason; `majority` is the accuracy of always
    predicting the most frequent label (None if candidates differ); `correct` has one bit a scored input, in the order
    of the split (see `bits`); `unscored` has the places, from 0, of the inputs that could not be scored. `drift` is the
    relative change of keys and of values in the row's last reading, each the mean over the layers; absent for T = 1.
    `corrected` is set if the setting has a calibration: labels and metrics are then those of the corrected scores.
    `plain_sha256` is the digest of the same demonstrations as Deep-Thinking reads them, if it is another one. `sha256`
    is the digest of all of this as it is written. `where` is the line that the row was read from
    (`run/results.jsonl:3`), and is not written.
    """

    key: str
    setting: Setting
    groups: list[str]
    shots_used: int
    length: int
    demonstrations_sha256: str
    n: int
    right: int
    accuracy: float
    accuracy_mean_per_token: float
    macro_f1: float | None
    ties: int
    majority: float | None
    chance: float
    correct: str
    skipped: dict[str, int] = field(default_factory=dict)
    unscored: list[int] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    drift: tuple[float, float] | None = None
    corrected: Corrected | None = None
    plain_sha256: str | None = None
    sha256: str = field(default="", compare=False)
    where: str = field(default="", compare=False)

    @property
    def demonstrations_used(self) -> int:
        """The number of different demonstrations that were read."""
        technique = find_recorded(self.setting.technique)
        return self.shots_used // (1 if technique is None else technique.copies)

    def line(self) -> str:
        """The row, with its digest, as one line of canonical JSON."""
        return canonical_json({**self._values(), "sha256": self.digest}) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of all fields but `sha256`."""
        return json_sha256(self._values())

    def _values(self) -> dict[str, Any]:
        values = asdict(self)
        del values["where"], values["sha256"]
        for name in ("drift", "corrected", "plain_sha256", "unscored"):
            if not values[name]:
                del values[name]
        for name in OPTIONAL:
            if values["setting"][name] is None:
                del values["setting"][name]
        return values

    def was_right(self) -> list[bool]:
        """For every scored input, in order, whether its label is correct."""
        import numpy as np

        packed = np.frombuffer(base64.b64decode(self.correct), np.uint8)
        return [bool(bit) for bit in np.unpackbits(packed, count=self.n, bitorder="little")]


def corrections_of(setting: Setting, predictions: Sequence[Prediction]) -> list[Correction] | None:
    """The corrections of the predictions that a setting asks for; None if it is of raw scores."""
    if setting.calibration is None:
        return None
    return [prediction.calibrated[setting.calibration] for prediction in predictions]


ADAPTER = TypeAdapter(Result)
T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """The items of each key, keys and items in the order of their first appearance."""
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def bits(right: Sequence[bool]) -> str:
    """Booleans packed eight a byte, the first in the lowest bit, in base64."""
    import numpy as np

    return base64.b64encode(np.packbits(np.array(right, dtype=bool), bitorder="little").tobytes()).decode()


def read_results(folder: str | Path) -> list[Result]:
    """The rows of a run's folder, in order; an incomplete last line of a killed run is ignored.

    Raises InputError if there is no run, and for a row that this program did not write, or that has been changed.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise InputError(f"{folder}: no {FILE} in it; give the folder of a deepthink run")
    with open(path, "rb") as lines:
        return [_row(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.endswith(b"\n")]


def _row(line: bytes, where: str) -> Result:
    try:
        row: Any = ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        path = place(first) or "row"
        raise InputError(f"{where}: not a row of a run: {path}: {reason(first)}; remove the line") from error
    if row.key != row.setting.key:
        raise InputError(f"{where}: the key is not that of its setting; remove the line and run again")
    if row.sha256 != row.digest:
        raise InputError(f"{where}: its sha256 is not that of its fields; remove the line and run again")
    return replace(row, where=where)  # type: ignore[no-any-return]


# A setting names its data by task, split and seed, and its digests identify their contents. Results with the same names
# and different digests must not share a folder or a table.
OTHER = {
    "task_sha256": "another definition of the task",
    "demonstrations_sha256": "other demonstrations",
    "rows_sha256": "other evaluated rows",
    "labelled_sha256": "other labelled rows",
}


def check_same_data(rows: Iterable[Result], planned: Iterable[Setting] | None = None) -> None:
    """Raise InputError if rows come from other data than those that are planned; without a plan, than each other.

    One line for each job and part.
    """
    first: dict[tuple[object, ...], tuple[str | None, str]] = {}
    differing: dict[tuple[object, ...], list[tuple[Result, dict[str, str]]]] = {}
    for setting in planned or ():
        first |= {name: (getattr(setting, digest), "this command uses") for digest, name in _names(setting).items()}
    way = (
        f"name a new {option('output')}, or remove these rows"
        if planned is not None
        else "report their runs separately"
    )
    for row in rows:
        setting, other = row.setting, dict[str, str]()
        for digest, name in _names(setting).items():
            own = getattr(setting, digest), row.where
            known, where = first.setdefault(name, own) if planned is None else first.get(name, own)
            if known != own[0]:
                other[digest] = where
        if other:
            job = (setting.task, setting.seed, setting.order_seed, setting.part)
            differing.setdefault(job, []).append((row, other))
    problems = Problems()
    for (task, seed, order_seed, part), of_job in differing.items():
        row, other = of_job[0]
        order = "" if order_seed is None else f" in order {order_seed}"
        words = " and ".join(OTHER[digest] for digest in OTHER if any(digest in each for _, each in of_job))
        count = "this row was" if len(of_job) == 1 else f"this row and {len(of_job) - 1} more were"
        than = f"made with {words} than {next(iter(other.values()))}"
        problems.add(f"{row.where}: {task}, seed {seed}{order}, {part}: {count} {than}; {way}")
    problems.raise_any()


def _names(setting: Setting) -> dict[str, tuple[object, ...]]:
    """For every digest, the fields that determine it as long as the data do not change."""
    pool = (setting.pool_size, setting.balanced, setting.technique)
    drawn = (setting.sampling, setting.shots, setting.seed, setting.order_seed, *pool)
    task = (setting.task, setting.task_sha256, setting.protocol)
    read = (setting.model_sha256, setting.positions, setting.tokens, setting.chat)
    dev = drawn if setting.part == "dev" else ()  # dev rows depend on the demonstrations, which are excluded
    names: dict[str, tuple[object, ...]] = {
        "task_sha256": (setting.task,),
        "demonstrations_sha256": (*task, *read, *drawn),
        "rows_sha256": (*task, setting.part, setting.split, setting.limit, *dev),
        "labelled_sha256": (*task, setting.labelled, *drawn),
    }
    return {digest: (digest, *name) for digest, name in names.items()}
