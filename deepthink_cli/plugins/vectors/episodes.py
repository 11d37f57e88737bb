"""Episodes: demonstrations of every label and a query, drawn from labelled rows, as token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import DemonstrationSet, example_of
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.errors import InputError
from deepthink_cli.model.boundary import common_length, demonstration_ids, special_ids
from deepthink_cli.model.tokens import query_tokenizer, solved_texts, tokenize_demonstrations
from deepthink_cli.plugins.vectors.options import VectorOptions
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.selection.pool import PoolRows

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

    `places` are the tokens of `ids` after which the labels of the demonstrations and of the query begin. `classes` are
    the numbers of the demonstrations' labels.
    """

    ids: tuple[int, ...]
    places: tuple[int, ...]
    classes: tuple[int, ...]
    alone: tuple[int, ...]


class Draws:
    """What is drawn from labelled rows: K of every label in a random order, and a row with another input as a query.

    Raises InputError, naming the label, if the rows are too few.
    """

    def __init__(self, pool: PoolRows, options: VectorOptions, tokenizer: PreTrainedTokenizerBase) -> None:
        self.pool, self.options, self.tokenizer = pool, options, tokenizer
        self.of_label: dict[str, list[int]] = {label: [] for label in pool.labels}
        for place in pool.free:
            self.of_label.setdefault(str(pool.queries[place].gold), []).append(place)
        groups = input_groups([pool.queries[place] for place in pool.free], pool.template, pool.labels)
        self.input_of = dict(zip(pool.free, groups, strict=True))
        self._check()

    def prompt(self) -> Prompt:
        """The demonstrations of the prompts to which vectors are added, drawn apart from the episodes'."""
        return self._prompt(self._drawn(Random(f"prompt {self.options.seed}")))

    def episodes(self) -> Iterator[Episode]:
        """Yield the episodes; raises InputError for labels that the tokenizer does not tell apart."""
        random, special = Random(f"episodes {self.options.seed}"), special_ids(self.tokenizer)
        tokenize = query_tokenizer(self.tokenizer, self.pool.template)
        for _ in range(self.options.episodes):
            chosen = self._drawn(random)
            read = {self.input_of[place] for place in chosen}
            while self.input_of[query := random.choice(self.pool.free)] in read:
                pass
            prompt, asked = self._prompt(chosen), [self.pool.queries[query]]
            (after,) = query_tokenizer(self.tokenizer, prompt.demonstrations)(asked)
            (alone,) = tokenize(asked)
            ids = prompt.demonstrations.token_ids + after.prefix
            yield Episode(ids, (*prompt.places, len(ids) - 1), prompt.classes, special + alone.prefix)

    def _drawn(self, random: Random) -> list[int]:
        """The places of the demonstrations, in the order of the prompt."""
        chosen = [place for places in self.of_label.values() for place in random.sample(places, self.options.shots)]
        random.shuffle(chosen)
        return chosen

    def _prompt(self, places: Sequence[int]) -> Prompt:
        pool = self.pool
        examples = tuple(example_of(pool.queries[place]) for place in places)
        demonstrations = tokenize_demonstrations(self.tokenizer, DemonstrationSet(examples, pool.template, pool.labels))
        return Prompt(demonstrations, answer_places(self.tokenizer, demonstrations))

    def _check(self) -> None:
        name, shots = self.pool.name, self.options.shots
        if not self.pool.labels:
            raise InputError(f"{name}: every row has candidates of its own; vectors need the same labels for all rows")
        for label, places in self.of_label.items():
            if len(places) < shots:
                reason = f"{name} has {len(places)} rows with the label {label!r}; give more of them, or fewer shots"
                raise InputError.of("shots", shots, reason)
        if len(set(self.input_of.values())) <= len(self.of_label) * shots:
            raise InputError.of("shots", shots, f"{name} has no other input for the query; give more rows")


def answer_places(tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations) -> tuple[int, ...]:
    """For each demonstration, the place in `token_ids` of the token after which its label begins.

    As for a query, this is the last token of the common beginning of the text up to the label and of the whole text.
    """
    template, places, before = demonstrations.template, list[int](), ""
    for each, solved in zip(demonstrations.examples, solved_texts(demonstrations), strict=True):
        asked = demonstration_ids(tokenizer, (before + template.query(each.text)).rstrip(" "))
        places.append(common_length(tuple(asked), demonstrations.token_ids) - 1)
        before += solved
    return tuple(places)
