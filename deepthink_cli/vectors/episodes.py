"""Episodes: demonstrations of every label and a query, drawn from labelled rows, as token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import DemonstrationSet, example_of
from deepthink_cli.errors import InputError
from deepthink_cli.model.tokens import answer_places, query_tokenizer, special_ids, tokenize_demonstrations
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.vectors.options import VectorOptions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Prompt:
    """Demonstrations as token ids; their labels begin after the tokens `places`, each of class `classes`."""

    demonstrations: TokenizedDemonstrations
    places: tuple[int, ...]

    @property
    def classes(self) -> tuple[int, ...]:
        """The number of each demonstration's label."""
        labels = self.demonstrations.labels
        return tuple(labels.index(each.label) for each in self.demonstrations.examples)


@dataclass(frozen=True)
class Episode:
    """A prompt and a query up to its label: `ids` together, and `alone` the query after the tokenizer's special tokens.

    `places` are the tokens of `ids` after which labels begin, those of the demonstrations and the query's; `classes`
    are the numbers of the demonstrations' labels.
    """

    ids: tuple[int, ...]
    places: tuple[int, ...]
    classes: tuple[int, ...]
    alone: tuple[int, ...]


def prompt_of(pool: PoolRows, options: VectorOptions, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    """The demonstrations of the prompts that vectors are added to; drawn apart from those of the episodes.

    Raises InputError, naming the label, if the rows are too few.
    """
    _check(pool, options)
    return _prompt(pool, _drawn(pool, options.shots, Random(f"prompt {options.seed}")), tokenizer)


def episodes_of(pool: PoolRows, options: VectorOptions, tokenizer: PreTrainedTokenizerBase) -> Iterator[Episode]:
    """Yield the episodes: K rows of every label in a random order, and one of the other rows as the query."""
    random, special = Random(f"episodes {options.seed}"), special_ids(tokenizer)
    tokenize = query_tokenizer(tokenizer, pool.template)
    for _ in range(options.episodes):
        chosen = _drawn(pool, options.shots, random)
        query = random.choice([place for place in pool.free if place not in chosen])
        prompt, (asked,) = _prompt(pool, chosen, tokenizer), tokenize([pool.queries[query]])
        ids = prompt.demonstrations.token_ids + asked.prefix
        yield Episode(ids, (*prompt.places, len(ids) - 1), prompt.classes, special + asked.prefix)


def _drawn(pool: PoolRows, shots: int, random: Random) -> list[int]:
    """The places of `shots` rows of every label, in a random order."""
    chosen = [place for label in pool.labels for place in random.sample(_of_label(pool, label), shots)]
    random.shuffle(chosen)
    return chosen


def _of_label(pool: PoolRows, label: str) -> list[int]:
    return [place for place in pool.free if pool.queries[place].gold == label]


def _prompt(pool: PoolRows, places: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> Prompt:
    examples = tuple(example_of(pool.queries[place]) for place in places)
    demonstrations = tokenize_demonstrations(tokenizer, DemonstrationSet(examples, pool.template, pool.labels))
    return Prompt(demonstrations, answer_places(tokenizer, demonstrations))


def _check(pool: PoolRows, options: VectorOptions) -> None:
    """Raise InputError unless there are K rows of every label, and another row as a query."""
    if not pool.labels:
        raise InputError(f"{pool.name}: every row has candidates of its own; vectors need the same labels for all rows")
    for label in pool.labels:
        if (count := len(_of_label(pool, label))) < options.shots:
            reason = f"{pool.name} has {count} rows with the label {label!r}; give more of them"
            raise InputError.of("shots", options.shots, f"{reason}, or fewer shots")
    if len(pool.free) == len(pool.labels) * options.shots:
        raise InputError.of("shots", options.shots, f"{pool.name} has no other row for the query; give more rows")
