"""The plan of `deepthink tune`: its rows, folds and settings, checked before the model is loaded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from deepthink_cli.calibration.basis import check_calibrations, check_inputs
from deepthink_cli.calibration.registry import CALIBRATIONS, FEWEST, HEAD, NONE, calibration, from_rows
from deepthink_cli.data.examples import DemonstrationSet, Query, example_of
from deepthink_cli.data.same_input import input_groups, split
from deepthink_cli.data.template import Chat
from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.meaning import check_meaning
from deepthink_cli.model.limits import check_fit
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer, tokenize_demonstrations
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.likelihood import check_fits
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.selection.choice import choose_demonstrations
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.registry import selection_method
from deepthink_cli.techniques.base import Technique
from deepthink_cli.techniques.registry import technique_of
from deepthink_cli.tuning.nested import FEWEST_ROWS
from deepthink_cli.tuning.options import Grid, TuneOptions, most_readings
from deepthink_cli.tuning.rivals import RIVALS

Named = TypeVar("Named")
FEWEST_FOLDS = 3  # with two folds held out, one is left to read
FEWEST_OF_LABEL = 2
PLAIN_SELECTION = "random"  # the selection of plain in-context learning with --shots


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Different labelled rows in the order of their content, so that the file's order has no effect.

    The rows may be turns of chats.
    """

    pool: PoolRows
    chat: Chat | None = None
    scoring: Scoring = PLAIN

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """The rows, without repetitions of identical rows."""
        return tuple(replace(self.pool.queries[place], fields=None) for place in self.pool.free)

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def groups(self) -> list[int]:
        """The number of every row's input; the rows of one input are in one fold."""
        return input_groups(self.queries, self.pool.template, self.pool.labels)

    @cached_property
    def gold(self) -> list[int]:
        """The index of every row's true label among its candidates."""
        return [query.candidates.index(str(query.gold)) for query in self.queries]

    def part(self, rows: Sequence[int]) -> PoolRows:
        """Some of the rows as a pool to choose demonstrations from."""
        queries = [self.queries[row] for row in rows]
        return PoolRows.of(self.pool.name, queries, self.pool.template, self.pool.labels)

    def demonstrations(self, rows: Sequence[int]) -> DemonstrationSet:
        """Some of the rows, in this order, as demonstrations."""
        examples = tuple(example_of(self.queries[row]) for row in rows)
        return DemonstrationSet(examples, self.pool.template, self.pool.labels, self.chat)


@dataclass(frozen=True)
class TunePlan:
    """A checked plan; `order` are the places of all rows in reading order."""

    spec: ModelSpec
    rows: LabelledRows
    options: TuneOptions
    grid: Grid
    folds: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]


def plan_tuning(rows: LabelledRows, model: ModelOptions, options: TuneOptions, tell: Tell = silent) -> TunePlan:
    """Find the model, and check rows, folds, settings and readings without loading the weights.

    Raises InputError for too few rows for a result beyond noise or for the folds, for a label with fewer than two rows,
    and if T readings of all rows, or a row after them, do not fit the model.
    """
    _check_rows(rows)
    for rivals in RIVALS.values():
        rivals.own(options.own)
    for name, value in rows.scoring.of_parts.items():
        raise InputError.of(
            name, value, "is of demonstrations that are read apart, and tune tries others, too; omit it"
        )
    most = len(set(rows.groups))
    count = most if options.folds == "loo" else int(options.folds)
    if not FEWEST_FOLDS <= count <= most:
        reason = f"{rows.pool.name} has {most} different inputs; use {FEWEST_FOLDS} to {most}, or loo"
        raise InputError.of("folds", options.folds, reason)
    strata = [str(query.gold) if rows.pool.labels else "" for query in rows.queries]
    folds = split(strata, rows.groups, count, options.seed)
    order = random.Random(options.seed).sample(range(len(rows)), len(rows))
    selections = _selections(rows, options, folds)
    calibrations = _calibrations(rows, options, folds, tell)
    if rows.pool.reasons:
        tell(Note("; ".join(f"{count} rows are {reason}" for reason, count in rows.pool.reasons.items())))
    spec = find_model(model, tell)
    grid = Grid(options.methods, calibrations, selections, tuple(map(technique_of, options.techniques)))
    return _usable(TunePlan(spec, rows, options, grid, tuple(folds), tuple(order)), tell)


def _calibrations(
    rows: LabelledRows, options: TuneOptions, folds: Sequence[Sequence[int]], tell: Tell
) -> tuple[str, ...]:
    """The calibrations to try, simplest first; by default all that the rows allow.

    Raises InputError if the rows outside a fold are too few for a named calibration.
    """
    remaining = len(rows) - max(map(len, folds))
    if options.shots is not None:  # the rows that a memory without two folds has not read
        remaining = len(rows) - sum(sorted(map(len, folds))[-2:]) - options.shots
    if options.calibrate is not None:
        for name in from_rows(options.calibrate):
            calibration(name).check_count(remaining)
        names = options.calibrate
    elif not rows.pool.labels:
        return (NONE,)
    else:
        names = tuple(CALIBRATIONS)
        if remaining < FEWEST:
            which = "outside a fold" if options.shots is None else "neither held out nor read"
            few = [name for name in from_rows(names) if not calibration(name).of_states]
            left_out = ", ".join(few)
            tell(Note(f"not tried: {left_out}: they need {FEWEST} rows {which}, and there are {remaining}"))
            names = tuple(name for name in names if name not in few)
    methods = [calibration(name) for name in CALIBRATIONS if name in {*names} - {NONE}]
    methods.sort(key=lambda each: (each.labelled, each.from_rows, each.name == HEAD))
    return (NONE, *(each.name for each in methods))


def tokenized(plan: TunePlan, technique: Technique, demonstrations: DemonstrationSet) -> TokenizedDemonstrations:
    """The tokens of demonstrations for a technique; raises InputError unless its readings fit the model."""
    spec, read = plan.spec, technique.change(demonstrations)
    iterations = most_readings(technique, plan.options.iterations)
    ids = tokenize_demonstrations(spec.tokenizer, read)
    for positions in plan.options.positions:
        if spec.limits.relative or not spec.limits.holds(len(ids.token_ids), positions, iterations):
            check_fit(spec.limits, spec.tokenizer, read, iterations, positions, spec.id)
    technique.check(spec, ids)
    return ids


def _usable(plan: TunePlan, tell: Tell) -> TunePlan:
    """The plan without the default techniques and calibrations that the rows or the model do not allow.

    Raises InputError unless the demonstrations fit the model T times, with every row and calibration after them.
    """
    spec, rows, options = plan.spec, plan.rows, plan.options
    chosen = rows.demonstrations(plan.order)
    if options.shots is not None:  # the selection of plain in-context learning needs no model
        plain = SelectOptions(demos_by=PLAIN_SELECTION, shots=options.shots, seed=options.seed)
        chosen = replace(choose_demonstrations(None, rows.part(plan.order), plain).demonstrations, chat=rows.chat)

    def fits(technique: Technique) -> TokenizedDemonstrations:
        read = tokenized(plan, technique, chosen)
        for query in query_tokenizer(spec.tokenizer, read, rows.scoring)(rows.queries):
            spec.check_ids(query.ids, query.where)
            check_fits(spec.limits, spec.id, read, query)
        return read

    def fits_too(technique: Technique) -> None:
        try:
            fits(technique)
        except InputError as error:
            raise InputError(technique.option.because(str(error))) from error

    def corrects(name: str) -> None:
        check_calibrations([name], demonstrations, rows.pool.name)
        check_inputs([name], demonstrations, spec, rows.scoring)

    first, *others = plan.grid.techniques
    demonstrations = fits(first)
    spec.check_ids(demonstrations.token_ids, rows.pool.name)
    techniques = [first, *_allowed(others, fits_too, "techniques" in options.model_fields_set, tell)]
    calibrations = _allowed(plan.grid.calibrations, corrects, options.calibrate is not None, tell)
    grid = replace(plan.grid, techniques=tuple(techniques), calibrations=tuple(calibrations))
    return replace(plan, grid=grid)


def _allowed(each: Iterable[Named], check: Callable[[Named], None], named: bool, tell: Tell) -> Iterator[Named]:
    """The names that pass a check; another one raises if the user `named` it, and is left out with a note otherwise."""
    for candidate in each:
        try:
            check(candidate)
        except InputError as error:
            if named:
                raise
            tell(Note(f"not tried: {error}"))
        else:
            yield candidate


def _check_rows(rows: LabelledRows) -> None:
    counts, name = Counter(str(query.gold) for query in rows.queries), rows.pool.name
    if rows.pool.labels and len(counts) < 2:
        raise InputError(f"{name}: one label only, {next(iter(counts))!r}; add rows of another")
    for label in rows.pool.labels:
        if counts[label] < FEWEST_OF_LABEL:
            raise InputError(
                f"{name}: label {label!r} has too few different rows, {counts[label]} of {FEWEST_OF_LABEL}: one to "
                "read and one to hold out; add others of it, or omit the label"
            )
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"{name}: {len(rows)} different rows; give {FEWEST_ROWS} at least: with fewer, no difference is "
            "beyond noise"
        )


def _selections(rows: LabelledRows, options: TuneOptions, folds: Sequence[Sequence[int]]) -> tuple[str | None, ...]:
    """The methods that choose demonstrations, first the method of plain in-context learning; None reads all rows."""
    check_meaning("tune", ["demos_by"], options.model_dump())
    if options.shots is None:
        return (None,)
    largest = sorted(map(len, folds))[-2:]
    if options.shots > len(rows) - sum(largest):
        raise InputError.of(
            "shots",
            options.shots,
            f"with two of {len(folds)} folds held out, {len(rows) - sum(largest)} rows are left to choose "
            "from; use fewer, or more folds",
        )
    for name in options.demos_by:
        if "queries" in selection_method(name, "demos_by").reads:
            raise InputError.of("demos_by", name, "chooses for given queries, and tune has none; omit it")
    return tuple(dict.fromkeys((PLAIN_SELECTION, *options.demos_by)))
