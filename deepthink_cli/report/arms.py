"""Arms of a comparison: the settings of a job except its task and its seed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

from deepthink_cli.data.chat import Chat
from deepthink_cli.runs.results import Setting

SPLITTING = ("sampling", "shots")  # fields that distinguish arms only if one task has several values of them


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: the settings that jobs have in common.

    `eta` is None if it was chosen on a dev set. `sampling` and `shots` are None unless one task has
    several of them: otherwise tasks of an arm may have different numbers of demonstrations.
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
    chat: Chat | None = None

    @classmethod
    def of(cls, setting: Setting, splitting: Collection[str] = ()) -> Arm:
        """The arm of a result; `splitting` names the fields of `SPLITTING` that distinguish arms."""
        names = [name for name in FIELDS if name not in SPLITTING or name in splitting]
        return cls(**{name: getattr(setting, name) for name in names})

    @property
    def family(self) -> Arm:
        """The arm without its eta, which groups the etas to choose from."""
        return replace(self, eta=None)

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """The sort key of arms of the same model."""
        return (
            *(self.dtype, self.quantize or "", self.protocol, self.positions),
            *(self.sampling or "", self.shots or 0, str(self.chat or ""), self.momentum, self.eta or 0.0),
        )

    def values(self) -> dict[str, Any]:
        """Every field by name, for JSON and CSV; the chat as text."""
        return {**asdict(self), "chat": str(self.chat) if self.chat else None}

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
            "chat": str(self.chat) if self.chat else "as plain text",
        }
        return ", ".join(words[name] for name in FIELDS if name in names and words[name])


FIELDS = tuple(Arm.__dataclass_fields__)


def varying(arms: Collection[Arm]) -> list[str]:
    """The fields in which arms differ."""
    return [name for name in FIELDS if len({getattr(arm, name) for arm in arms}) > 1]


def shared(arms: Sequence[Arm]) -> list[str]:
    """The fields in which all arms agree, except unset ones."""
    present = [name for name in FIELDS if name == "eta" or getattr(arms[0], name) is not None]
    return [name for name in present if name not in varying(arms)]
