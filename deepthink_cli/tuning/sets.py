"""The demonstrations of every memory of a cross-validation: those of its rows that are not held out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepthink_cli.engine.base import Engine
from deepthink_cli.events import Progress, Tell
from deepthink_cli.provenance import Selected, TokenizedDemonstrations
from deepthink_cli.selection.choice import Request, choose_demonstrations
from deepthink_cli.selection.store import Store
from deepthink_cli.tuning.nested import HeldOut, held_out
from deepthink_cli.tuning.plan import TunePlan, tokenized


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Demonstrations of the rows outside some folds, and the rows of those folds, which are scored after them.

    `selection` is the index of the method that chose the demonstrations, `selected` its record.
    """

    held_out: HeldOut
    selection: int
    rows: tuple[int, ...]
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
        return TrainingSet(left_out, selection, scored, tokenized(plan, plan.rows.demonstrations(rest)), None)
    assert plan.options.shots is not None
    request = Request(method, plan.options.shots, plan.options.seed, chat=plan.rows.chat)
    chosen = choose_demonstrations(engine, plan.rows.part(rest), request, store)
    demonstrations = replace(chosen.demonstrations, chat=plan.rows.chat)
    return TrainingSet(left_out, selection, scored, tokenized(plan, demonstrations), chosen.selected)
