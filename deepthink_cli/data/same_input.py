"""The comparison of inputs, for demonstrations, evaluated rows and held-out rows alike, and folds of whole inputs.

Texts are compared as a template writes them: blanks around a field's value do not count, everything else does. A text
with two labels is one input. Rows with candidates of their own often share a text ("Which of these is true?"): two such
rows are the same input if their candidates, or their true labels, are the same as well.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b, sha256
from typing import Any

from deepthink_cli.data.examples import Example, Query
from deepthink_cli.data.template import Template
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.text import canonical_json


def input_keys(row: Query | Example, template: Template, labels: Sequence[str]) -> frozenset[bytes]:
    """Keys of eight bytes; two rows are the same input if they have a key in common.

    `labels` are the label words of all rows; empty if rows have candidates of their own, or none.
    """
    text = template.query(row.text)
    if labels:
        return frozenset([_key(text)])
    if isinstance(row, Example):  # its candidates are not known, and a generated answer has none
        return frozenset([_key(text), _key(text, row.label)])
    if not row.candidates:
        return frozenset([_key(text)])
    return frozenset([_key(text, sorted(row.candidates)), *([] if row.gold is None else [_key(text, row.gold)])])


def input_groups(rows: Iterable[Query | Example], template: Template, labels: Sequence[str]) -> list[int]:
    """The number of each row's input; rows of the same input have the same number, also if only a third row joins them.

    Held-out rows are whole inputs, so that no row is judged by a memory that has seen its input.
    """
    parents, first = dict[bytes, bytes](), list[bytes]()

    def root(key: bytes) -> bytes:
        while parents.setdefault(key, key) != key:
            key = parents[key]
        return key

    for row in rows:
        keys = sorted(input_keys(row, template, labels))
        for key in keys:
            parents[root(key)] = root(keys[0])
        first.append(keys[0])
    numbers = dict[bytes, int]()
    return [numbers.setdefault(root(key), len(numbers)) for key in first]


def is_among(
    rows: Iterable[Query | Example], template: Template, labels: Sequence[str]
) -> Callable[[Query | Example], bool]:
    """A function that says whether a row is the same input as one of `rows`."""
    known = frozenset(key for row in rows for key in input_keys(row, template, labels))
    return lambda row: not known.isdisjoint(input_keys(row, template, labels))


def row_digest(query: Query) -> bytes:
    """Sixteen bytes that identify a row's text, candidates and true label, on which its result depends."""
    return blake2b(canonical_json([query.text, query.candidates, query.gold]).encode(), digest_size=16).digest()


def rows_digest(rows: Iterable[bytes]) -> str:
    """SHA-256 of rows in their order, given the `row_digest` of each."""
    return sha256(b"".join(rows)).hexdigest()


def same_rows(queries: Iterable[Query], rows_sha256: str, named: str) -> Iterator[Query]:
    """The queries, as they come; raises DeepThinkError after the last one if their digest is another."""
    digest = sha256()
    for query in queries:
        digest.update(row_digest(query))
        yield query
    if digest.hexdigest() != rows_sha256:
        raise DeepThinkError(f"{named} have changed since they were checked; restore them, or begin again")


FOLDS, SEED = 5, 0  # of the cross-validation of a correction


def split(labels: Sequence[str], groups: Sequence[int], count: int, seed: int) -> list[tuple[int, ...]]:
    """`count` folds of row numbers, in increasing order; every label is spread evenly over the folds.

    `groups` are the numbers of the rows' inputs. The rows of one input are in one fold, so that no held-out input is
    among the other rows. Every fold has a row if `count` is at most the number of different inputs.
    """
    of_input: dict[int, list[int]] = {}
    for row, number in enumerate(groups):
        of_input.setdefault(number, []).append(row)
    by_label: dict[str, list[list[int]]] = {}
    for rows in of_input.values():
        by_label.setdefault(labels[rows[0]], []).append(rows)
    draw, folds, dealt = random.Random(seed), [list[int]() for _ in range(count)], 0
    for label in sorted(by_label):
        for rows in draw.sample(by_label[label], len(by_label[label])):
            folds[dealt % count] += rows
            dealt += 1
    return [tuple(sorted(fold)) for fold in folds]


def parted(labels: Sequence[str], groups: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The rows of each of `FOLDS` folds, and the rows outside it; there are fewer folds if there are fewer inputs."""
    for fold in split(labels, groups, min(FOLDS, len(set(groups))), SEED):
        inside = set(fold)
        yield list(fold), [row for row in range(len(labels)) if row not in inside]


def _key(*values: Any) -> bytes:
    return blake2b(json.dumps(values).encode(), digest_size=8).digest()
