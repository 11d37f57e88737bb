"""Techniques that read other demonstrations: repeated, with other label words, each alone, in several orders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.events import Tell, silent
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.techniques.base import Technique

if TYPE_CHECKING:
    from deepthink_cli.model.spec import ModelSpec


class Repeated(Technique):
    """All demonstrations several times, block after block, each block in their order."""

    summary = "the demonstrations R times in the context"
    source = "an objection to the paper, DAMO-ConvAI issue 51"
    cost = "a context of R L tokens, in each of T passes"
    parameter = "R"

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations R times."""
        return replace(demonstrations, examples=demonstrations.examples * self.number)

    @property
    def copies(self) -> int:
        """R."""
        return self.number


class Flipped(Technique):
    """The next label of the list in place of each label, and the first in place of the last."""

    summary = "the next label in place of each label"
    source = "Wei et al. 2023, arXiv 2303.03846"
    other_words = True

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations with the labels shifted by one; raises InputError for rows without common labels."""
        labels = _labels(demonstrations, self.option)
        return replace(demonstrations, words=dict(zip(labels, (*labels[1:], labels[0]), strict=True)))


# Names of things that no task of this package is about, in the order in which labels get them.
FRESH = (
    *("lamp", "spoon", "gravel", "violin", "anchor", "button", "candle", "ladder", "pillow", "walnut"),
    *("saddle", "kettle", "marble", "ribbon", "bucket", "feather", "hammer", "blanket", "basket", "mirror"),
)


class Fresh(Technique):
    """Unrelated words in place of the labels: the first of `FRESH` that are no labels."""

    summary = "unrelated words in place of the labels"
    source = "Wei et al. 2023, arXiv 2303.03846"
    other_words = True

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations with unrelated words; raises InputError for more labels than words, or none in common."""
        labels = _labels(demonstrations, self.option)
        taken = {label.casefold() for label in labels}
        words = [word for word in FRESH if word not in taken]
        if len(labels) > len(words):
            raise InputError(
                self.option.because(f"{len(labels)} labels, and there are {len(words)} words; use fewer labels")
            )
        return replace(demonstrations, words=dict(zip(labels, words, strict=False)))


class Composed(Technique):
    """Every demonstration alone, T times, and one memory of all their keys and values.

    Each has the positions 0, 1, ... and the special tokens of a text, so that its keys and values do not depend on the
    others; queries have positions L onward, as after any memory.
    """

    summary = "each demonstration read alone, all of them one memory"
    source = "Yang et al. 2025, arXiv 2502.05431"
    cost = "T passes over L tokens, each of which attends to its own demonstration"

    def change(self, demonstrations: DemonstrationSet) -> DemonstrationSet:
        """The demonstrations apart; raises InputError for turns of a conversation."""
        if demonstrations.chat is not None:
            raise InputError(
                self.option.because(f"turns of a conversation cannot be read alone; omit {option('chat')}")
            )
        return replace(demonstrations, apart=True)

    def check(self, spec: ModelSpec, demonstrations: TokenizedDemonstrations, tell: Tell = silent) -> None:
        """Raise InputError if a token's place in the memory has a meaning, or all parts do not fit the model."""
        total, limits = sum(demonstrations.parts), spec.limits.after(demonstrations)
        if limits.relative:
            raise InputError(
                f"{spec.id}: its positions follow from the number of earlier tokens, which differs from part to part; "
                "read the demonstrations together, without composing them"
            )
        most = limits.max_tokens()
        if most is not None and total >= most:
            raise InputError(
                f"{total} tokens in all parts, {spec.id} holds {most} ({limits.reason()}) with a query; compose fewer "
                "demonstrations"
            )


class Ensemble(Technique):
    """Several memories of the demonstrations in different orders, the first in the given one."""

    summary = "the mean log-probability over N memories, of the demonstrations in different orders"
    source = "common practice"
    cost = "N times the cost of Deep-Thinking"
    parameter = "N"
    largest = 999

    @property
    def members(self) -> int:
        """N."""
        return self.number

    def sets(self, demonstrations: DemonstrationSet) -> Iterator[DemonstrationSet]:
        """The orders."""
        yield demonstrations
        examples = demonstrations.examples
        for order in range(1, self.number):
            yield replace(demonstrations, examples=tuple(random.Random(order).sample(examples, len(examples))))


def _labels(demonstrations: DemonstrationSet, named: Problem) -> tuple[str, ...]:
    """The labels; raises InputError if every row has candidates of its own."""
    if not demonstrations.labels:
        raise InputError(named.because("every demonstration has candidates of its own; use rows with common labels"))
    return demonstrations.labels
