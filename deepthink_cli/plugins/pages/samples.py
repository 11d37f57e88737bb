"""Samples in columns: every evaluated input with its label and scores at each T, compact enough for 100,000 rows."""

from __future__ import annotations

import base64
import gzip
import json
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deepthink_cli.scoring.softmax import log_sum

MAX_CANDIDATES = 12  # candidates of a row whose scores are kept one by one
LONGEST_TEXT = 4000  # characters of an input
REST = "(all other candidates)"


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
        """Add one row to the last group: for each iteration its label, and the scores of the candidates in nats.

        The middle of a long text is omitted. Of more than `MAX_CANDIDATES` candidates only the true label, those
        predicted and the best of the last iteration are kept; the score of the rest is that of all of them together.
        """
        assert len(labels) == len(scores) == len(self.groups[-1].iterations)
        needed = {gold, *labels}
        if len(candidates) > max(MAX_CANDIDATES, len(needed)):
            candidates, scores = _reduced(candidates, needed, scores)
        self.group.append(len(self.groups) - 1)
        self.text.append(_number(self.texts, shortened(text)))
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


def shortened(text: str) -> str:
    """The text without its middle if it has more than `LONGEST_TEXT` characters."""
    half = LONGEST_TEXT // 2
    return text if len(text) <= LONGEST_TEXT else f"{text[:half]} [...] {text[-half:]}"


def _reduced(
    candidates: Sequence[str], needed: set[str], scores: Sequence[Sequence[float]]
) -> tuple[list[str], list[list[float]]]:
    """The needed candidates and the best ones at the last iteration, then the rest as one, with their scores."""
    best = sorted(range(len(candidates)), key=lambda number: (candidates[number] not in needed, -scores[-1][number]))
    count = max(MAX_CANDIDATES, len(needed))
    kept, rest = sorted(best[:count]), best[count:]
    reduced = [[values[number] for number in kept] + [log_sum(values[n] for n in rest)] for values in scores]
    return [candidates[number] for number in kept] + [REST], reduced


def _number(numbers: dict[Any, int], key: Any) -> int:
    """The number of a key, which is the next one if the key is new."""
    return numbers.setdefault(key, len(numbers))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
