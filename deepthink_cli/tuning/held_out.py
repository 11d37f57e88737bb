"""Score held-out rows after every reading of the memories that are made without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.base import Calibration
from deepthink_cli.calibration.basis import BasisInputs
from deepthink_cli.calibration.registry import NONE, calibration, from_rows
from deepthink_cli.data.examples import example_of
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import option
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.provenance import Selected, TokenizedDemonstrations
from deepthink_cli.scoring.prediction import Scores, score_each
from deepthink_cli.selection.choice import Request, choose_demonstrations
from deepthink_cli.selection.store import Store
from deepthink_cli.techniques.together import think_in_batches
from deepthink_cli.tuning.nested import HeldOut, held_out
from deepthink_cli.tuning.options import Grid
from deepthink_cli.tuning.plan import LabelledRows, TunePlan, tokenized

if TYPE_CHECKING:
    from deepthink_cli.calibration.base import Floats
    from deepthink_cli.memory import Memory


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Demonstrations of the rows outside some folds, and the rows of those folds, which are scored after them.

    `selection` is the index of the method that chose the demonstrations, `selected` its record. `unread` are the other
    rows outside those folds, which that method has not chosen: a bias is estimated from them.
    """

    held_out: HeldOut
    selection: int
    rows: tuple[int, ...]
    unread: tuple[int, ...]
    demonstrations: TokenizedDemonstrations
    selected: Selected | None


def training_sets(plan: TunePlan, engine: Engine, store: Store | None, tell: Tell) -> list[TrainingSet]:
    """The sets without each fold and without each pair of folds, for every selection.

    Raises InputError if T readings of one do not fit the model, and what a method of selection raises.
    """
    folds, sets = held_out(len(plan.folds)), list[TrainingSet]()
    for number, _ in enumerate(plan.grid.selections):
        for left_out in folds:
            sets.append(training_set(plan, left_out, number, engine, store))
            if plan.options.shots is not None:
                tell(Progress("choosing", len(sets), len(plan.grid.selections) * len(folds)))
    return sets


def training_set(plan: TunePlan, left_out: HeldOut, selection: int, engine: Engine, store: Store | None) -> TrainingSet:
    """The set without some folds: all other rows, or as many of them as the selection chooses."""
    scored = tuple(row for fold in left_out for row in plan.folds[fold])
    rest, method = [row for row in plan.order if row not in set(scored)], plan.grid.selections[selection]
    if method is None:
        return TrainingSet(left_out, selection, scored, (), tokenized(plan, plan.rows.demonstrations(rest)), None)
    assert plan.options.shots is not None
    request = Request(method, plan.options.shots, plan.options.seed, chat=plan.rows.chat)
    chosen = choose_demonstrations(engine, plan.rows.part(rest), request, store)
    demonstrations = replace(chosen.demonstrations, chat=plan.rows.chat)
    read = set(demonstrations.examples)
    unread = tuple(row for row in rest if example_of(plan.rows.queries[row]) not in read)
    return TrainingSet(left_out, selection, scored, unread, tokenized(plan, demonstrations), chosen.selected)


def held_out_scores(
    engine: Engine, rows: LabelledRows, sets: Sequence[TrainingSet], grid: Grid, tell: Tell
) -> list[dict[str, Floats]]:
    """For each set, log-probabilities (methods, T, n, C) of its n held-out rows after each reading of its memories.

    They are raw under `none`, and corrected under each calibration that scores texts, or rows that the memory has not
    read, through the memory. C is the most candidates of a row; a row with fewer has -inf for the rest. All readings
    are done in shared passes, as many at once as fit the device.
    """
    methods = grid.methods
    scorers = [_Scorer(engine, rows, each, grid) for each in sets]
    total, done = len(sets) * len(methods) * grid.iterations, 0

    def score(numbers: Sequence[int], memories: list[Memory]) -> Iterator[int]:
        for place, group in groupby(zip(numbers, memories, strict=True), lambda pair: pair[0] // len(methods)):
            of_set = {number % len(methods): memory for number, memory in group}
            scorers[place].score(of_set)
            yield len(of_set)

    tell(Progress("tuning", 0, total))
    thoughts = [(each.demonstrations, method) for each in sets for method in methods]
    for scored in think_in_batches(engine, thoughts, score):
        done = min(total, done + scored)  # a batch that runs out of memory is scored again
        tell(Progress("tuning", done, total))
    return [scorer.scores for scorer in scorers]


def affordable(engine: Engine, plan: TunePlan, sets: Sequence[TrainingSet], seconds: float, tell: Tell) -> Grid:
    """The grid with as many readings as fit some seconds, and one at least; times two readings of the longest set."""
    longest = max(sets, key=lambda each: len(each.demonstrations.token_ids) + len(each.rows))
    probe, started = replace(plan.grid, methods=plan.grid.methods[:1]).up_to(min(2, plan.grid.iterations)), clock()
    held_out_scores(engine, plan.rows, [longest], probe, silent)
    spent = clock() - started
    of_reading = spent / probe.iterations * len(sets) * len(plan.grid.methods)
    most = max(1, min(plan.grid.iterations, int((seconds - spent) / of_reading)))
    if most < plan.grid.iterations:
        text = f"{option('budget')} {plan.options.budget}: T up to {most} is tried instead of {plan.grid.iterations}"
        tell(Note(f"{text}; each T takes about {of_reading:.0f} s"))
    return plan.grid.up_to(most)


@dataclass(frozen=True)
class _Basis:
    """What a calibration is estimated from for rows with the same candidates.

    `texts` are the places of its texts or rows among all queries, `gold` the places of their true labels, if needed.
    """

    name: str
    method: Calibration
    rows: list[int]
    texts: range
    candidates: int
    gold: Sequence[int] | None = None


class _Scorer:
    """The scores of one set's held-out rows; they and the texts of calibrations are tokenised once."""

    def __init__(self, engine: Engine, rows: LabelledRows, of: TrainingSet, grid: Grid) -> None:
        import numpy as np

        queries = [rows.queries[row] for row in of.rows]
        unread = [rows.queries[row] for row in of.unread]
        tokenized = query_tokenizer(engine.tokenizer, of.demonstrations)([*queries, *unread])
        places: dict[tuple[str, ...], list[int]] = {}
        for place, query in enumerate(queries):
            places.setdefault(query.candidates, []).append(place)
        self.engine, self.rows, self.bases = engine, len(queries), list[_Basis]()
        for name in from_rows(grid.calibrations) if unread else ():
            method, everywhere = calibration(name), list(range(len(queries)))
            gold = [rows.gold[row] for row in of.unread] if method.labelled else None
            span = range(len(queries), len(tokenized))
            self.bases.append(_Basis(name, method, everywhere, span, len(rows.labels), gold))
        for name in grid.calibrations:
            if name != NONE and not calibration(name).from_rows:
                inputs = BasisInputs(name, engine.tokenizer, of.demonstrations)
                for candidates, same in places.items():
                    _, texts = inputs([candidates])
                    span = range(len(tokenized), len(tokenized) + len(texts))
                    self.bases.append(_Basis(name, calibration(name), same, span, len(candidates)))
                    tokenized += texts
        self.plan = engine.plan(tokenized)
        shape = (len(grid.methods), grid.iterations, len(queries), max(map(len, (q.candidates for q in rows.queries))))
        self.scores = {name: np.full(shape, -np.inf) for name in (NONE, *(basis.name for basis in self.bases))}

    def score(self, memories: dict[int, Memory]) -> None:
        """Score the memories of some methods, by the method's index, after the same reading."""
        numbers: list[Any] = list(memories)
        iteration = memories[numbers[0]].iteration
        if iteration == 1:  # the same memory for every method
            numbers, memories = [numbers], {0: memories[numbers[0]]}
        placed = [self.engine.place(memory) for memory in memories.values()]
        for number, scored in zip(numbers, score_each(self.engine, placed, self.plan), strict=True):
            self._keep(number, iteration - 1, scored)

    def _keep(self, number: int | list[int], reading: int, scored: Sequence[Scores]) -> None:
        for row, scores in enumerate(scored[: self.rows]):
            self.scores[NONE][number, reading, row, : len(scores.sums)] = scores.sums
        for basis in self.bases:
            corrected = basis.method.corrected(
                [scored[row].sums for row in basis.rows], [scored[place].sums for place in basis.texts], basis.gold
            )
            for row, values in zip(basis.rows, corrected, strict=True):
                self.scores[basis.name][number, reading, row, : basis.candidates] = values
