"""Pools of labelled rows, from a file or a task: the rows that can be chosen, and the reasons against the others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.examples import CANDIDATES, Example, Query, read_pool
from deepthink_cli.data.same_input import row_digest, rows_digest
from deepthink_cli.data.source import RowSource
from deepthink_cli.data.template import SEPARATOR, Template
from deepthink_cli.model.boundary import boundary, special_ids
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import query_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CheckQueries = Callable[[Iterable[tuple[str, Query | Example]]], None]  # of pairs of place and row

IDENTICAL = "identical to an earlier row"
TOO_LONG = "too long for the model"


@dataclass(frozen=True, eq=False)
class PoolRows:
    """Labelled rows in the order in which they were read; a row's place is its index in `queries`.

    `name` is the file or the task. `labels` are the label words, empty if every row has candidates of its own.
    `set_aside` holds the reason for every place that cannot be chosen. `left_out` counts the training rows of a task
    that are not in the pool, by reason; `check_queries` refuses other rows that a task evaluates.
    """

    name: str
    queries: tuple[Query, ...]
    template: Template
    labels: tuple[str, ...]
    set_aside: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    check_queries: CheckQueries | None = None

    @classmethod
    def of(
        cls, name: str, queries: Iterable[Query], template: Template, labels: Sequence[str], **more: Any
    ) -> PoolRows:
        """A pool of rows with true labels; all but the first of identical rows are set aside.

        Rows are identical if their texts, candidates and labels are; their other fields may differ.
        """
        rows, seen, set_aside = tuple(queries), set[bytes](), dict[int, str]()
        for place, query in enumerate(rows):
            digest = row_digest(query)
            if digest in seen:
                set_aside[place] = IDENTICAL
            seen.add(digest)
        return cls(name, rows, template, tuple(labels), set_aside, **more)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The places that can be chosen, in content order: it does not depend on the order of the file."""
        places = [place for place in range(len(self.queries)) if place not in self.set_aside]
        return tuple(sorted(places, key=lambda place: row_digest(self.queries[place])))

    @property
    def sha256(self) -> str:
        """The digest of the rows that can be chosen, in content order."""
        return rows_digest(row_digest(self.queries[place]) for place in self.free)

    @property
    def reasons(self) -> Counter[str]:
        """The numbers of rows that were set aside, by reason."""
        return Counter(self.set_aside.values())

    def fitting(self, tokenizer: PreTrainedTokenizerBase, limits: Limits) -> PoolRows:
        """The pool without the rows that do not fit the model, as a zero-shot query and as a single demonstration."""
        fit = fits(tokenizer, limits, self.template)
        return self._without({place: TOO_LONG for place in self.free if not fit(self.queries[place])})

    def sampled(self, size: int | None, seed: int) -> PoolRows:
        """The pool with `size` of its rows, drawn with a seed; all of them if `size` is None or there are fewer."""
        if size is None or size >= len(self.free):
            return self
        # A separate stream of random numbers: with the method's stream, a sample and a choice would be correlated.
        kept = set(random.Random(f"pool {seed}").sample(self.free, size))
        reason = "not in the sample of the pool"
        return self._without({place: reason for place in self.free if place not in kept})

    def row(self, place: int) -> dict[str, Any]:
        """A row as it was read; for a task, the template's fields and the row's own candidates, if any."""
        query = self.queries[place]
        if query.fields is not None:
            return dict(query.fields)
        own = {} if self.labels else {CANDIDATES: list(query.candidates)}
        return {**self.template.values(query.text), **own, self.template.label_field: query.gold}

    def _without(self, places: Mapping[int, str]) -> PoolRows:
        return replace(self, set_aside={**self.set_aside, **places})


def pool_of_file(
    source: str | RowSource,
    pattern: str | None = None,
    label_field: str | None = None,
    labels: Sequence[str] | None = None,
    separator: str = SEPARATOR,
) -> PoolRows:
    """The labelled rows of a file (see `read_rows`); raises InputError with every mistake, as `read_pool`."""
    template, words, queries = read_pool(source, pattern, label_field, labels, separator)
    return PoolRows.of(RowSource.of(source).name, queries, template, words)


def fits(tokenizer: PreTrainedTokenizerBase, limits: Limits, template: Template) -> Callable[[Query], bool]:
    """A function that says if a row fits a model, as a zero-shot query and, if it has a label, as a demonstration."""
    special = len(special_ids(tokenizer))
    most = limits.max_tokens()
    tokenize = query_tokenizer(tokenizer, template)

    def fit(query: Query) -> bool:
        if most is None:
            return True
        solved = template.demonstrations([(query.text, query.gold or "")])
        longest = max(len(candidate.encode()) for candidate in query.candidates)
        if special + len(solved.encode()) + longest <= most:  # no text has more tokens than bytes
            return True
        tokens = special + tokenize([query])[0].longest
        return tokens <= most and (query.gold is None or len(boundary(tokenizer, template, [solved]).ids) <= most)

    return fit
