"""Techniques and the nearest mean beside one reading, by the samples of `research/techniques.py`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .discrimination import Compared, Pair
from .load import Evidence
from .methods import NEAREST_MEAN, TECHNIQUES, line_of

ONCE = "deep-thinking T=1"
COMPOSED, CONTEXT_TUNING = line_of("composed"), line_of("ct-kv")


def beside_once(evidence: Evidence) -> Iterator[Compared]:
    """Every technique, and the nearest mean hidden state of the dev rows, as far as they were run."""
    found = [
        *(Compared(line_of(name), False, _pairs(evidence, f"{name} T=1")) for name in TECHNIQUES),
        Compared(NEAREST_MEAN, True, _pairs(evidence, "centroid T=1", trained=True)),
    ]
    return (each for each in found if each.pairs)


def _pairs(evidence: Evidence, arm: str, trained: bool = False) -> list[Pair]:
    """The tasks and seeds of an arm whose demonstrations were read once, too."""
    found = []
    for (name, task, seed), after in evidence.arms.items():
        before = evidence.arms.get((ONCE, task, seed))
        if name != arm or before is None:
            continue
        for part in after:
            assert after[part].labels == before[part].labels
            assert np.array_equal(after[part].gold, before[part].gold)
        found.append(Pair(task, seed, before["test"], after["test"], before.get("dev"), after.get("dev"), trained))
    return found
