"""Score held-out rows after every reading of the memories that are made without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from deepthink_cli.calibration.basis import BasisInputs
from deepthink_cli.calibration.registry import NONE, Calibration, calibration, from_rows
from deepthink_cli.data.same_input import is_among
from deepthink_cli.engine.base import Engine
from deepthink_cli.events import Progress, Tell
from deepthink_cli.io.cache import Store
from deepthink_cli.make_memory import Result, think_in_batches
from deepthink_cli.method import Method
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.provenance import Selected, TokenizedDemonstrations
from deepthink_cli.scoring.heads import observed_layers
from deepthink_cli.scoring.likelihood import observe_each, score_each
from deepthink_cli.scoring.prediction import Scores
from deepthink_cli.selection.choice import choose_demonstrations
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.tuning.nested import STATES, HeldOut, held_out
from deepthink_cli.tuning.options import Grid
from deepthink_cli.tuning.plan import LabelledRows, TunePlan, tokenized

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory
    from deepthink_cli.scoring.softmax import Floats
    from deepthink_cli.thinking import Thought


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Demonstrations from the rows outside some folds, and the held-out rows of these folds.

    Each technique has its own `demonstrations`. `selection` is the index of the method that chose them, `selected` its
    record. `unread` are the rows outside the folds whose input was not chosen; biases are estimated from them.
    """

    held_out: HeldOut
    selection: int
    rows: tuple[int, ...]
    unread: tuple[int, ...]
    demonstrations: tuple[TokenizedDemonstrations, ...]
    selected: Selected | None


def training_sets(plan: TunePlan, engine: Engine, store: Store | None, tell: Tell) -> list[TrainingSet]:
    """The sets without each fold and without each pair of folds, for every selection.

    Raises InputError if T readings of a set do not fit the model; raises as the methods of selection do.
    """
    folds, sets = held_out(len(plan.folds)), list[TrainingSet]()
    for number, _ in enumerate(plan.grid.selections):
        for left_out in folds:
            sets.append(training_set(plan, left_out, number, engine, store))
            if plan.options.shots is not None:
                tell(Progress("choosing", len(sets), len(plan.grid.selections) * len(folds)))
    return sets


def training_set(plan: TunePlan, left_out: HeldOut, selection: int, engine: Engine, store: Store | None) -> TrainingSet:
    """The set without some folds: all other rows, or the rows among them that the selection chooses."""
    scored, techniques = tuple(row for fold in left_out for row in plan.folds[fold]), plan.grid.techniques
    rest, method = [row for row in plan.order if row not in set(scored)], plan.grid.selections[selection]
    if method is None:
        read = tuple(tokenized(plan, each, plan.rows.demonstrations(rest)) for each in techniques)
        return TrainingSet(left_out, selection, scored, (), read, None)
    assert plan.options.shots is not None
    options, chat = SelectOptions(demos_by=method, shots=plan.options.shots, seed=plan.options.seed), plan.rows.chat
    chosen = choose_demonstrations(engine, plan.rows.part(rest), options, store, chat=chat)
    demonstrations = replace(chosen.demonstrations, chat=chat)
    was_read = is_among(demonstrations.examples, plan.rows.pool.template, plan.rows.pool.labels)
    unread = tuple(row for row in rest if not was_read(plan.rows.queries[row]))
    read = tuple(tokenized(plan, each, demonstrations) for each in techniques)
    return TrainingSet(left_out, selection, scored, unread, read, chosen.selected)


@dataclass(frozen=True, eq=False)
class Tried:
    """The grid with the readings that were tried, and the scores of each set's n held-out rows.

    `scores` are log-probabilities (techniques, methods, T, n, C): raw under `none`, and corrected under each
    calibration whose texts or unread rows are scored through the memory. Under `states` are hidden states (techniques,
    methods, T, n, L, W). C is the most candidates of a row; a row with fewer has -inf for the rest. `seconds` are the
    seconds of one T with one method, by technique: of T = 1, and of each later T.
    """

    grid: Grid
    scores: list[dict[str, Floats]]
    seconds: tuple[tuple[float, float], ...]


def held_out_scores(
    engine: Engine, rows: LabelledRows, sets: Sequence[TrainingSet], grid: Grid, tell: Tell, budget: float | None = None
) -> Tried:
    """Score the held-out rows of every set after each reading of its memories, within `budget` seconds.

    With a budget, T = 1 of every technique comes first, then T > 1 of each, for which T = 1 is read again, as far as
    the budget allows by the time of the first set. T = 1 of the first technique is always scored; corrections by texts
    are left out if it would take too long. The sets are read in shared passes, as many at once as fit the device.
    """
    import numpy as np

    end, stages = None, list(enumerate(grid.asked))
    if budget is not None:
        end, stages = clock() + budget, [*((kind, 1) for kind, _ in stages), *stages]
        grid = _affordable(engine, rows, sets, grid, end)
    scorers = [[_Scorer(engine, rows, each, grid, kind) for each in sets] for kind in range(len(grid.asked))]
    readings, seconds = [0] * len(grid.asked), [[0.0, 0.0] for _ in grid.asked]
    for kind, last in stages:
        technique, before = grid.techniques[kind], readings[kind]
        first, methods = last == 1, grid.methods[:1] if last == 1 else grid.methods
        if last <= before or not (first or before or end is None):
            continue
        if end is not None and (kind or before):
            of_set = (end - clock()) / len(sets)
            if of_set < seconds[0][0] / len(sets) * (technique.steps if isinstance(technique, Trained) else 1):
                continue  # a reading takes T = 1 at least, and a step of training, too
            times = _timed(engine, technique, methods, sets[0].demonstrations[kind], scorers[kind][0], before, last)
            of_set = (end - clock()) / len(sets)
            if of_set < times[0]:
                continue
            each_later = (times[-1] - times[0]) / (len(times) - 1) if times[1:] else times[0]
            last = min(last, before + 1 + int((of_set - times[0]) / each_later))
        done, total, what = 0, len(sets) * len(methods) * (last - before), f"tuning {technique.name}"
        tell(Progress(what, done, total))
        since = clock()
        thoughts = [
            (each.demonstrations[kind], replace(method, iterations=last)) for each in sets for method in methods
        ]
        for iteration, scored in memories_of(engine, technique, thoughts, _score(scorers[kind], len(methods), before)):
            done = min(total, done + scored)  # a batch that runs out of memory is scored again
            tell(Progress(what, done, total))
            seconds[kind][iteration > 1] += clock() - since
            since = clock()
        readings[kind] = last
    costs = [
        (once, later / max(1, (last - 1) * len(grid.methods)))
        for last, (once, later) in zip(readings, seconds, strict=True)
    ]
    # A technique that the budget left out has zeros.
    scores = [
        {
            name: np.stack([each.scores.get(name, np.zeros_like(values)) for each in of_set])
            for name, values in of_set[0].scores.items()
        }
        for of_set in zip(*scorers, strict=True)
    ]
    return Tried(replace(grid, readings=tuple(readings)), scores, tuple(costs))


def _affordable(engine: Engine, rows: LabelledRows, sets: Sequence[TrainingSet], grid: Grid, end: float) -> Grid:
    """The grid with those corrections by texts with which T = 1 ends in time, by the time and the tokens of a set.

    The correction with the most tokens is left out first.
    """
    scorer = _Scorer(engine, rows, sets[0], grid, 0)
    demonstrations, most = sets[0].demonstrations[0], dict[str, int]()
    (seconds,) = _timed(engine, grid.techniques[0], grid.methods[:1], demonstrations, scorer, 0, 1)
    tokens = [len(tuple(query.ids)) for query in scorer.plan.queries]
    total = len(demonstrations.token_ids) + sum(tokens)
    for basis in scorer.bases:
        if not basis.method.from_rows:
            most[basis.method.name] = most.get(basis.method.name, 0) + sum(tokens[place] for place in basis.texts)
    left, left_out = total, list[str]()
    for name in sorted(most, key=lambda name: -most[name]):
        if seconds * len(sets) * left / total > end - clock():
            left_out.append(name)
            left -= most[name]
    calibrations = tuple(name for name in grid.calibrations if name not in left_out)
    return replace(grid, calibrations=calibrations, left_out=tuple(left_out))


def _timed(
    engine: Engine,
    technique: Technique,
    methods: Sequence[Method],
    demonstrations: TokenizedDemonstrations,
    scorer: _Scorer,
    before: int,
    last: int,
) -> list[float]:
    """The seconds until one set is scored after the next reading, and the one after that, up to T = `last`."""
    began, thoughts = clock(), [(demonstrations, replace(each, iterations=min(last, before + 2))) for each in methods]
    scored = memories_of(engine, technique, thoughts, _score([scorer], len(methods), before))
    return [clock() - began for _ in scored]


def memories_of(
    engine: Engine,
    technique: Technique,
    thoughts: Sequence[Thought],
    use: Callable[[Sequence[int], list[Memory]], Iterator[Result]],
) -> Iterator[Result]:
    """Yield the results of `use` for every reading, or for the trained memories."""
    if not isinstance(technique, Trained):
        yield from think_in_batches(engine, thoughts, use)
        return
    for number, (demonstrations, _) in enumerate(thoughts):
        training = technique.training(engine, demonstrations)
        for _ in training:
            pass
        yield from use([number], [training.memory])


def _score(
    scorers: Sequence[_Scorer], methods: int, before: int
) -> Callable[[Sequence[int], list[Memory]], Iterator[tuple[int, int]]]:
    """A function that scores a batch of memories after each reading that follows the first `before` readings.

    It yields the reading and the number of memories of each set. Memory number i is of set i // `methods` and method
    i % `methods`.
    """

    def score(numbers: Sequence[int], memories: list[Memory]) -> Iterator[tuple[int, int]]:
        if memories[0].iteration <= before:
            return
        for place, group in groupby(zip(numbers, memories, strict=True), lambda pair: pair[0] // methods):
            of_set = {number % methods: memory for number, memory in group}
            scorers[place].score(of_set)
            yield memories[0].iteration, len(of_set)

    return score


@dataclass(frozen=True)
class _Basis:
    """The basis of a calibration for rows with the same candidates.

    `texts` are the places of its texts or rows among all queries; `gold` are the places of their true labels, if
    needed.
    """

    method: Calibration
    rows: list[int]
    texts: range
    gold: Sequence[int] | None = None
    groups: Sequence[int] = ()


class _Scorer:
    """The scores of one set's held-out rows; the rows and the texts of calibrations are tokenised once."""

    def __init__(self, engine: Engine, rows: LabelledRows, of: TrainingSet, grid: Grid, technique: int) -> None:
        import numpy as np

        demonstrations = of.demonstrations[technique]
        queries = [rows.queries[row] for row in of.rows]
        unread = [rows.queries[row] for row in of.unread]
        tokenized = query_tokenizer(engine.tokenizer, demonstrations, rows.scoring)([*queries, *unread])
        places: dict[tuple[str, ...], list[int]] = {}
        for place, query in enumerate(queries):
            places.setdefault(query.candidates, []).append(place)
        self.engine, self.rows, self.bases = engine, len(queries), list[_Basis]()
        self.scoring = rows.scoring
        self.observed = any(name != NONE and calibration(name).of_states for name in grid.calibrations)
        for name in from_rows(grid.calibrations) if unread else ():
            method, everywhere = calibration(name), list(range(len(queries)))
            gold = [rows.gold[row] for row in of.unread] if method.labelled else None
            span = range(len(queries), len(tokenized))
            groups = [rows.groups[row] for row in of.unread]
            self.bases.append(_Basis(method, everywhere, span, gold, groups))
        for name in grid.calibrations:
            if name != NONE and not calibration(name).from_rows:
                inputs = BasisInputs(name, engine.tokenizer, demonstrations, rows.scoring)
                for candidates, same in places.items():
                    _, texts = inputs([candidates])
                    span = range(len(tokenized), len(tokenized) + len(texts))
                    self.bases.append(_Basis(calibration(name), same, span))
                    tokenized += texts
        self.plan = engine.plan(tokenized)
        self.shape = (len(grid.methods), grid.iterations, len(queries))
        widest = max(len(query.candidates) for query in rows.queries)
        names = (NONE, *(basis.method.name for basis in self.bases))
        self.scores = {name: np.full((*self.shape, widest), -np.inf) for name in names}

    def score(self, memories: dict[int, Memory]) -> None:
        """Score memories after the same reading, by the index of their method; all methods have one T = 1."""
        import numpy as np

        iteration = next(iter(memories.values())).iteration
        if iteration == 1:
            memories = {0: next(iter(memories.values()))}
        placed = [self.engine.place(memory) for memory in memories.values()]
        numbers = [slice(None) if iteration == 1 else number for number in memories]
        if not self.observed:
            for number, scored in zip(numbers, score_each(self.engine, placed, self.plan, self.scoring), strict=True):
                self._keep(number, iteration - 1, scored, None)
            return
        for number, memory in zip(numbers, placed, strict=True):
            layers = observed_layers(len(memory.keys))
            scored, states = observe_each(self.engine, memory, self.plan, layers, self.scoring)
            self._keep(number, iteration - 1, scored, np.stack([each.numpy() for each in states]))

    def _keep(self, number: int | slice, reading: int, scored: Sequence[Scores], states_NLW: Any) -> None:
        import numpy as np

        for row, scores in enumerate(scored[: self.rows]):
            self.scores[NONE][number, reading, row, : len(scores.sums)] = scores.sums
        if states_NLW is not None:
            if STATES not in self.scores:
                self.scores[STATES] = np.zeros((*self.shape, *states_NLW.shape[1:]), np.float32)
            self.scores[STATES][number, reading] = states_NLW[: self.rows]
        for basis in self.bases:
            rows, texts = list(basis.rows), list(basis.texts)
            logs, of_texts = ([scored[place].sums for place in places] for places in (rows, texts))
            own, rest = (states_NLW[places] if basis.method.of_states else None for places in (rows, texts))
            found = basis.method.fitted(of_texts, basis.gold, basis.groups, rest).scores(own, logs)
            for row, of_row in zip(rows, found, strict=True):
                self.scores[basis.method.name][number, reading, row, : len(of_row)] = of_row
