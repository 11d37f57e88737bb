"""Techniques and the nearest mean beside one reading, by the samples of `benchmarks/techniques.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .discrimination import Comparison, Pair
from .load import Evidence, Scores
from .methods import NEAREST_MEAN, TECHNIQUES

ONCE = "deep-thinking T=1"
COMPOSED, CONTEXT_TUNING = (f"`{name}`: {TECHNIQUES[name]}" for name in ("composed", "ct-kv"))


def beside_once(evidence: Evidence) -> Iterator[Comparison]:
    """Every technique, and the nearest mean hidden state of the dev rows, as far as they were run."""
    arms = {f"`{name}`: {words}": f"{name} T=1" for name, words in TECHNIQUES.items()}
    found = [
        *(Comparison(name, False, _pairs(evidence.arms, arm)) for name, arm in arms.items()),
        Comparison(NEAREST_MEAN, True, _pairs(evidence.arms, "centroid T=1", trained=True)),
    ]
    return (each for each in found if each.pairs)


def _pairs(arms: Mapping[tuple[str, str, int], Mapping[str, Scores]], wanted: str, trained: bool = False) -> list[Pair]:
    """The tasks and seeds of an arm that were read once, too; both had the same demonstrations and rows."""
    found = []
    for (arm, task, seed), after in arms.items():
        before = arms.get((ONCE, task, seed))
        if arm == wanted and before is not None:
            found.append(Pair(task, seed, before["test"], after["test"], before.get("dev"), after.get("dev"), trained))
    return found
