"""Samples in columns: every evaluated input with its label and scores at each T, compact enough for 100,000 rows."""

from __future__ import annotations

import base64
import gzip
import json
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Group:
    """The common part of the rows of one job; `method` names its arm if a page has several."""

    task: str
    seed: str
    method: str
    part: str
    iterations: tuple[int, ...]


class Samples:
    """Columns of rows. A row is one input of one group; its labels and scores are in the order of the iterations."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.texts: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.candidates: dict[tuple[int, ...], int] = {}
        self.group, self.text, self.place, self.gold, self.set = (array("I") for _ in range(5))
        self.predicted = array("H")  # numbers of candidates
        self.scores = array("f")  # nats

    def __len__(self) -> int:
        return len(self.group)

    def start(self, group: Group) -> None:
        """Begin a group; `add` adds rows to the last one."""
        self.groups.append(group)

    def add(
        self,
        text: str,
        where: str,
        gold: str,
        candidates: Sequence[str],
        labels: Sequence[str],
        scores: Sequence[Sequence[float]],
    ) -> None:
        """Add one row to the last group: for each iteration its label, and the scores of the candidates in nats."""
        assert len(labels) == len(scores) == len(self.groups[-1].iterations)
        self.group.append(len(self.groups) - 1)
        self.text.append(_number(self.texts, text))
        self.place.append(_number(self.places, where))
        self.gold.append(_number(self.labels, gold))
        self.set.append(_number(self.candidates, tuple(_number(self.labels, name) for name in candidates)))
        self.predicted.extend([candidates.index(label) for label in labels])
        for of_iteration in scores:
            self.scores.extend(of_iteration)

    def columns(self) -> list[Column]:
        """Every column; scores in thousandths of a nat."""
        import numpy as np

        about: dict[str, Any] = {
            "groups": [asdict(group) for group in self.groups],
            "labels": list(self.labels),
            "candidates": [list(numbers) for numbers in self.candidates],
        }
        words = [
            Column(name, "json", _json(value))
            for name, value in {"about": about, "texts": list(self.texts), "places": list(self.places)}.items()
        ]
        numbers = [
            Column(name, "u32", np.asarray(getattr(self, name)).astype("<u4").tobytes())
            for name in ("group", "text", "place", "gold", "set")
        ]
        scores = np.rint(np.asarray(self.scores, dtype=np.float64) * 1000).astype("<i4")
        predicted = np.asarray(self.predicted).astype("<u2")
        return [
            *words,
            *numbers,
            Column("predicted", "u16", predicted.tobytes()),
            Column("scores", "i32", scores.tobytes()),
        ]


@dataclass(frozen=True)
class Column:
    """The bytes of a column: JSON, or little-endian numbers of the named type."""

    name: str
    type: str
    content: bytes

    def packed(self) -> str:
        """The bytes compressed with gzip, in base64; the same bytes give the same text."""
        return base64.b64encode(gzip.compress(self.content, compresslevel=6, mtime=0)).decode()


def _number(numbers: dict[Any, int], key: Any) -> int:
    """The number of a key, which is the next one if the key is new."""
    return numbers.setdefault(key, len(numbers))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
