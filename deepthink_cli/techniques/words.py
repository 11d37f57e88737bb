"""Controls that write other words for the labels: what is left of the accuracy was learned from the demonstrations."""

from __future__ import annotations

from dataclasses import replace

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError

# Names of things that no task of this package is about, in the order in which labels get them.
FRESH = (
    *("lamp", "spoon", "gravel", "violin", "anchor", "button", "candle", "ladder", "pillow", "walnut"),
    *("saddle", "kettle", "marble", "ribbon", "bucket", "feather", "hammer", "blanket", "basket", "mirror"),
)


def flipped(demonstrations: DemonstrationSet) -> DemonstrationSet:
    """The demonstrations with the next label of the list in place of each label, and the first in place of the last."""
    labels = _labels(demonstrations, "flipped")
    return replace(demonstrations, words=dict(zip(labels, (*labels[1:], labels[0]), strict=True)))


def fresh(demonstrations: DemonstrationSet) -> DemonstrationSet:
    """The demonstrations with unrelated words in place of the labels: the first of `FRESH` that are no labels."""
    labels = _labels(demonstrations, "fresh")
    taken = {label.casefold() for label in labels}
    words = [word for word in FRESH if word not in taken]
    if len(labels) > len(words):
        raise InputError(f"--method fresh: {len(labels)} labels, and there are {len(words)} words; use fewer labels")
    return replace(demonstrations, words=dict(zip(labels, words, strict=False)))


def _labels(demonstrations: DemonstrationSet, name: str) -> tuple[str, ...]:
    """The labels; raises InputError if every row has candidates of its own."""
    if not demonstrations.labels:
        raise InputError(f"--method {name}: every demonstration has candidates of its own; use rows with common labels")
    return demonstrations.labels
