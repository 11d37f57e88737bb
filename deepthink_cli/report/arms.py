"""Arms of a comparison: the settings of a job except its task and its seed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

from deepthink_cli.data.template import Chat
from deepthink_cli.experiments.results import Setting
from deepthink_cli.techniques.registry import find_recorded, trains
from deepthink_cli.updates import GATE

# Fields that distinguish arms only if one task has several values of them.
SPLITTING = ("sampling", "pool_size", "balanced", "shots", "labelled")
POOL = ("sampling", "pool_size", "balanced")  # they always distinguish arms whose demonstrations a method chose

STEP = ("momentum", "eta", "update")  # fields that a technique with a single reading does not have
_IF_SET = ("tokens", "labelled", "scoring", "update")  # written only if they differ from the default
# Fields that distinguish methods.
COMPARED = ("sampling", "pool_size", "balanced", "technique", "calibration", "scoring", "update")
READING = ("positions", *STEP)  # fields without effect on T = 1
# Fields by which arms of the same model are sorted.
_SORTED = (
    *("dtype", "quantize", "protocol", "positions", *POOL, "shots", "tokens", "chat"),
    *("technique", "calibration", "labelled", "scoring", "update", "momentum", "eta"),
)


def is_rival(technique: str | None) -> bool:
    """Whether a technique is another way to the same answers, to be compared with plain in-context learning.

    Deep-Thinking, techniques that change the labels, and unknown techniques are compared with their own T = 1.
    """
    found = find_recorded(technique)
    return found is not None and not found.other_words


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: the settings that jobs have in common.

    `eta` is None if it was chosen on a dev set, and for a technique that reads once. The fields of `SPLITTING` are None
    unless a task has several values of them, so that the tasks of an arm may have different numbers of demonstrations.
    `technique` is None for Deep-Thinking alone, `calibration` for raw scores, `scoring` for the paper's scoring,
    `update` for the paper's gate.
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
    tokens: str | None = None
    chat: Chat | None = None
    pool_size: int | None = None
    balanced: bool | None = None
    technique: str | None = None
    calibration: str | None = None
    labelled: int | None = None
    scoring: str | None = None
    update: str | None = None

    @classmethod
    def of(cls, setting: Setting, splitting: Collection[str] = ()) -> Arm:
        """The arm of a result; `splitting` names the fields of `SPLITTING` that distinguish arms."""
        chosen = () if setting.balanced is None else POOL
        names = [name for name in FIELDS if name not in SPLITTING or name in splitting or name in chosen]
        values = {name: getattr(setting, name) for name in names}
        if trains(setting.technique):
            values |= {"momentum": 0.0, "eta": None, "update": None}
        return cls(**values)

    @property
    def family(self) -> Arm:
        """The arm without its eta, which groups the etas to choose from."""
        return replace(self, eta=None)

    @property
    def baseline_is_plain(self) -> bool:
        """Whether its baseline is plain in-context learning: for Deep-Thinking, and techniques that keep the labels."""
        return self.technique is None or is_rival(self.technique)

    @property
    def is_read_once(self) -> bool:
        """Whether its technique makes one memory instead of T."""
        return trains(self.technique)

    @property
    def chooses_eta(self) -> bool:
        """Whether its eta was chosen on dev rows."""
        return self.eta is None and not self.is_read_once

    def has(self, name: str) -> bool:
        """Whether a field has a meaning for its technique."""
        return not (self.is_read_once and name in STEP)

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """The sort key of arms of the same model."""
        values = (getattr(self, name) for name in _SORTED)
        return tuple((value is not None, str(value) if isinstance(value, Chat) else value) for value in values)

    def values(self) -> dict[str, Any]:
        """Every field by name, for JSON and CSV: the chat as text, scoring and update rule if not default."""
        values = {**asdict(self), "chat": str(self.chat) if self.chat else None}
        return {name: value for name, value in values.items() if value or name not in _IF_SET}

    def label(self, names: Collection[str], short: bool = False) -> str:
        """The named fields as text; `short` omits a model's owner or folder."""
        words = {
            "model": PurePath(self.model).name if short else self.model,
            "dtype": self.dtype,
            "quantize": self.quantize or "unquantized",
            "protocol": f"protocol {self.protocol}",
            "positions": f"{self.positions} positions",
            "momentum": f"momentum {self.momentum:g}",
            "eta": "eta chosen on dev" if self.eta is None else f"eta {self.eta:g}",
            "sampling": f"{self.sampling} sampling" if self.sampling else "",
            "shots": f"{self.shots} shots" if self.shots is not None else "",
            "tokens": f"token ids of {self.tokens}" if self.tokens else "token ids of the prompt",
            "chat": str(self.chat) if self.chat else "as plain text",
            "pool_size": f"pool of {self.pool_size}" if self.pool_size is not None else "",
            "balanced": "balanced" if self.balanced else "",
            "technique": self.technique or "Deep-Thinking",
            "calibration": f"{self.calibration} calibration" if self.calibration else "raw scores",
            "labelled": f"{self.labelled} labelled rows" if self.labelled is not None else "",
            "scoring": self.scoring or "score=sum",
            "update": self.update or GATE,
        }
        return ", ".join(words[name] for name in FIELDS if name in names and self.has(name) and words[name])

    def baseline_label(self, names: Collection[str], short: bool = False) -> str:
        """The named fields of the baseline, on which the settings of the readings have no effect."""
        omitted = {*READING, "technique"} if self.baseline_is_plain else READING
        return self.label([name for name in names if name not in omitted], short)


FIELDS = tuple(Arm.__dataclass_fields__)


def varying(arms: Collection[Arm]) -> list[str]:
    """The fields in which arms differ, among the arms that have them."""
    return [name for name in FIELDS if len({getattr(arm, name) for arm in arms if arm.has(name)}) > 1]


def title(arms: Sequence[Arm]) -> str:
    """The fields that are set, and in which all arms that have them agree, as text."""
    differing, whole = varying(arms), next((arm for arm in arms if not arm.is_read_once), arms[0])
    present = [
        name
        for name in FIELDS
        if name == "eta" or any(arm.has(name) and getattr(arm, name) is not None for arm in arms)
    ]
    return whole.label([name for name in present if name not in differing])
