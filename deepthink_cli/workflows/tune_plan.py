"""The plan of `deepthink tune`: its rows, folds, settings and memories, checked before the model is loaded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from deepthink_cli.calibration.registry import CALIBRATIONS, NONE
from deepthink_cli.data.chat import Chat
from deepthink_cli.data.examples import DemonstrationSet, Example, Query, read_pool
from deepthink_cli.data.rows import name_of
from deepthink_cli.data.template import SEPARATOR, Template
from deepthink_cli.errors import InputError
from deepthink_cli.model.fitting import check_fit
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer, tokenize_demonstrations
from deepthink_cli.options import ModelOptions, TuneOptions
from deepthink_cli.provenance import TokenizedDemonstrations, canonical_json
from deepthink_cli.scoring import check_length
from deepthink_cli.tasks.splits import row_digest
from deepthink_cli.tuning.folds import HeldOut, held_out, split
from deepthink_cli.tuning.grid import Grid
from deepthink_cli.tuning.verdict import FEWEST_ROWS
from deepthink_cli.workflows.events import Note, Tell, silent
from deepthink_cli.workflows.models import find_model, warn_without_chat

FEWEST_FOLDS = 3  # with two of them held out, one is left to read
FEWEST_OF_LABEL = 2


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows in content order, so that the order of their file changes nothing, and how they become prompts.

    `labels` is empty if every row has candidates of its own; `source` names the rows in messages.
    """

    queries: tuple[Query, ...]
    template: Template
    labels: tuple[str, ...]
    chat: Chat | None = None
    source: str = "rows"

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def texts(self) -> list[str]:
        """What makes two rows the same input."""
        return [canonical_json(query.text) for query in self.queries]

    @cached_property
    def gold(self) -> list[int]:
        """The index of every row's true label among its candidates."""
        return [query.candidates.index(str(query.gold)) for query in self.queries]

    def order(self, seed: int) -> list[int]:
        """All rows in the order in which they are read, drawn with a seed."""
        return random.Random(seed).sample(range(len(self)), len(self))

    def demonstrations(self, rows: Sequence[int]) -> DemonstrationSet:
        """Some of the rows, in this order, as demonstrations."""
        examples = [Example(self.queries[row].text, str(self.queries[row].gold)) for row in rows]
        return DemonstrationSet(tuple(examples), self.template, self.labels, self.chat)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Demonstrations of the rows outside one or two folds, and the rows of those folds, which are scored after them."""

    held_out: HeldOut
    rows: tuple[int, ...]
    demonstrations: TokenizedDemonstrations


@dataclass(frozen=True)
class TunePlan:
    """A checked plan: `sets` are the demonstrations of all memories; `demonstrations` are those of the final memory."""

    spec: ModelSpec
    rows: LabelledRows
    options: TuneOptions
    grid: Grid
    folds: tuple[tuple[int, ...], ...]
    sets: tuple[TrainingSet, ...]
    demonstrations: TokenizedDemonstrations


def labelled_rows(
    source: str,
    pattern: str | None = None,
    label_field: str | None = None,
    labels: Sequence[str] | None = None,
    separator: str = SEPARATOR,
    chat: Chat | None = None,
) -> LabelledRows:
    """Read the rows of a file or of standard input (`-`); raises InputError with every mistake, each with file:line."""
    template, words, queries = read_pool(source, pattern, label_field, labels, separator)
    queries = [replace(query, fields=None) for query in sorted(queries, key=row_digest)]
    return LabelledRows(tuple(queries), template, words, chat, name_of(source))


def plan_tuning(rows: LabelledRows, model: ModelOptions, options: TuneOptions, tell: Tell = silent) -> TunePlan:
    """Find the model, and check all rows, folds and readings without loading the weights.

    Raises InputError for rows that are too few for a result beyond noise or for the folds, for a label with fewer than
    two, and if T readings of all rows, or a row after them, do not fit the model.
    """
    _check_rows(rows)
    folds = split(_strata(rows), rows.texts, _fold_count(rows, options), options.seed)
    grid = Grid(options.methods, _calibrations(rows, options))
    if repeated := len(rows) - len(set(rows.texts)):
        tell(Note(f"{repeated} rows repeat the text of another row; rows with the same text are held out together"))
    spec = find_model(model, tell)
    warn_without_chat(spec, rows.chat, tell)
    order = rows.order(options.seed)
    demonstrations = _checked(spec, rows, options, order)
    sets = []
    for left_out in held_out(len(folds)):
        scored = tuple(row for fold in left_out for row in folds[fold])
        tokenized = tokenize_demonstrations(
            spec.tokenizer, rows.demonstrations([row for row in order if row not in scored])
        )
        sets.append(TrainingSet(left_out, scored, tokenized))
    return TunePlan(spec, rows, options, grid, tuple(folds), tuple(sets), demonstrations)


def _checked(
    spec: ModelSpec, rows: LabelledRows, options: TuneOptions, order: Sequence[int]
) -> TokenizedDemonstrations:
    """All rows as demonstrations, which fit the model T times and with every row after them."""
    demonstrations = rows.demonstrations(order)
    for positions in options.positions:
        check_fit(spec.limits, spec.tokenizer, demonstrations, options.iterations, positions, spec.id)
    tokenized = tokenize_demonstrations(spec.tokenizer, demonstrations)
    spec.check_ids(tokenized.token_ids, rows.source)
    for query in query_tokenizer(spec.tokenizer, tokenized)(rows.queries):
        spec.check_ids(query.ids, query.where)
        check_length(spec.limits, spec.id, len(tokenized.token_ids), query)
    return tokenized


def _check_rows(rows: LabelledRows) -> None:
    if rows.labels:
        counts = Counter(str(query.gold) for query in rows.queries)
        if len(rows.labels) < 2:
            raise InputError(f"{rows.source}: one label only, {rows.labels[0]!r}; give rows of another")
        for label in rows.labels:
            if counts[label] < FEWEST_OF_LABEL:
                raise InputError(
                    f"{rows.source}: label {label!r} has {counts[label]} rows, every label needs {FEWEST_OF_LABEL}: "
                    "one to read and one to hold out; add rows of it, or omit it"
                )
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"{rows.source}: {len(rows)} rows; give {FEWEST_ROWS} at least, because with fewer no difference is beyond "
            "noise"
        )


def _strata(rows: LabelledRows) -> list[str]:
    """What is spread evenly over the folds: the label, if the rows share their labels."""
    return [str(query.gold) if rows.labels else "" for query in rows.queries]


def _fold_count(rows: LabelledRows, options: TuneOptions) -> int:
    most = len(set(rows.texts))
    count = most if options.folds == "loo" else int(options.folds)
    if not FEWEST_FOLDS <= count <= most:
        raise InputError(
            f"--folds {options.folds}: {rows.source} has {most} different texts; use {FEWEST_FOLDS} to {most}, or loo"
        )
    return count


def _calibrations(rows: LabelledRows, options: TuneOptions) -> tuple[str, ...]:
    """The calibrations to choose from; without shared labels, none by default."""
    if rows.labels:
        return options.calibrate
    if "calibrate" not in options.model_fields_set:
        return (NONE,)
    for name in options.calibrate:
        if name != NONE and not CALIBRATIONS[name].own_candidates:
            raise InputError(
                f"--calibrate {name}: every row of {rows.source} has candidates of its own, and this calibration needs "
                "labels that all rows share; omit it"
            )
    return options.calibrate
