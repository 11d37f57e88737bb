"""Selection methods by name, and their interface: a pool of labelled rows, a model's results for them, the choice."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from deepthink_cli.data.examples import Query
from deepthink_cli.errors import InputError, option
from deepthink_cli.options import Options, named_by
from deepthink_cli.registry import Registry, instance_of, loaded

if TYPE_CHECKING:  # the names of the methods are shown in help pages, which are instant
    from numpy import float32, float64, int64
    from numpy.typing import NDArray

    Floats = NDArray[float64]
    States = NDArray[float32]
    Ints = NDArray[int64]

Reads = Literal["hidden", "probabilities", "tokens", "trials", "queries"]


class Trials(Protocol):
    """Trials of demonstrations with the model (plain in-context learning, T = 1); results of the cache do not count."""

    sets_read: int
    inputs_scored: int

    def probabilities(self, sets: Sequence[Sequence[int]], rows: Sequence[int]) -> Floats:
        """p(y | demonstrations, x), normalised over the labels, in float64 (sets, rows, C).

        `sets` are lists of pool rows in reading order, which may be empty (zero-shot). `rows` are the classified pool
        rows, whose labels the model does not read.
        """


@dataclass(frozen=True, eq=False)
class Pool:
    """Labelled rows in the order of their contents, so that ties do not depend on the file's order.

    Fields that a method's registry entry does not read are None. There are n rows and C labels; W is the width of the
    model. `hidden` (n, W) are the hidden states before the model's head at the token that predicts the label, in
    zero-shot prompts; `probabilities` (n, C) are the labels' probabilities there; `tokens` has the hidden states (s, W)
    of every row's own tokens. `target_hidden` and `target_tokens` are the hidden states of the queries of the choice
    (--for). `trials` tries sets of rows as demonstrations. `balanced` asks for equal numbers of every label. `groups`
    has the number of every row's input (`input_groups`); None if all inputs differ. The model read `observed` of the
    rows and queries, and `cached` came from the cache.
    """

    rows: Sequence[Query]
    hidden: States | None = None
    probabilities: Floats | None = None
    tokens: Sequence[States] | None = None
    target_hidden: States | None = None
    target_tokens: Sequence[States] | None = None
    trials: Trials | None = None
    balanced: bool = False
    groups: Sequence[int] | None = None
    observed: int = 0
    cached: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def inputs(self) -> Ints:
        """The number (n,) of every row's input: a set that is tried on a row must not have read its input."""
        import numpy as np

        return np.asarray(range(len(self)) if self.groups is None else self.groups, dtype=np.int64)

    @cached_property
    def gold(self) -> Ints:
        """The index (n,) of every row's true label among its candidates."""
        import numpy as np

        return np.array([query.candidates.index(str(query.gold)) for query in self.rows], dtype=np.int64)

    @cached_property
    def by_label(self) -> dict[str, list[int]]:
        """The rows of each label, in alphabetical order of the labels that occur."""
        rows: dict[str, list[int]] = {}
        for number, query in enumerate(self.rows):
            rows.setdefault(str(query.gold), []).append(number)
        return dict(sorted(rows.items()))

    def shares(self, shots: int) -> dict[str, int]:
        """The number of demonstrations of each label: equal parts of `shots`, and one of the rest for each first label.

        Raises InputError for fewer shots than labels, and for a label with too few rows.
        """
        each, rest = divmod(shots, len(self.by_label))
        if not each:
            reason = f"the pool has {len(self.by_label)} labels; use at least as many, or omit {option('balance')}"
            raise InputError.of("shots", shots, reason)
        shares = {label: each + (place < rest) for place, label in enumerate(self.by_label)}
        for label, share in shares.items():
            if share > len(self.by_label[label]):
                raise InputError.of(
                    "balance",
                    None,
                    f"label {label!r} has {len(self.by_label[label])} rows, its share of {option('shots')} "
                    f"{shots} is {share}; add rows of it, use fewer {option('shots')}, or omit {option('balance')}",
                )
        return shares


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen rows of a pool, and the scores (n,) of all rows, if the method has scores.

    A larger score is better. If a method chooses one row after another, a chosen row has its score at the time, and
    every other row has its score for the next choice. `ordered` is set if the order is part of the choice; otherwise
    the rows are shuffled with the seed before they are read.
    """

    rows: Sequence[int]
    scores: Floats | None = None
    ordered: bool = False


@dataclass(frozen=True)
class SelectionMethod:
    """A selection method, as `deepthink list selections` shows it.

    `choose` is a function, or the place of one (`module:function`), of the pool, the number of rows, a `random.Random`
    and the method's own options by name. It chooses so many rows of the pool, which has at least as many, or raises
    InputError. Its randomness comes only from the given one, so that a seed always chooses the same rows.

    `reads` are the parts of the pool that it needs; a method that reads none needs no model. For a `balanced` pool, a
    method that `balances` chooses equal numbers of every label itself; any other method is applied to the rows of every
    label separately. A method that is `balanced_by_default` chooses so unless asked otherwise, as its source does.
    `cost` is in passes of the model. A method `in_file_order` gets the rows in the order of their file, not of their
    content. A method that does not `draw` chooses the same rows for every seed. `options` are the method's own options,
    all with defaults. A method that reads trials balances itself.
    """

    choose: Callable[..., Choice] | str
    summary: str
    source: str
    reads: tuple[Reads, ...] = ()
    cost: str = "none"
    balances: bool = False
    balanced_by_default: bool = False
    in_file_order: bool = False
    draws: bool = True
    options: type[Options] | None = None

    def __call__(self, pool: Pool, shots: int, draw: random.Random, own: Mapping[str, Any] | None = None) -> Choice:
        """Choose demonstrations; `own` are values of the method's own options."""
        checked = {} if self.options is None else self.options.checked(**own or {}).model_dump()
        return loaded(self.choose)(pool, shots, draw, **checked)


def first(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Choose the first rows, in their order, independently of the seed."""
    return Choice(range(shots), ordered=True)


def uniform(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw rows without replacement, each with the same probability, in random order."""
    return Choice(draw.sample(range(len(pool)), shots), ordered=True)


def stratified(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """Draw `shots // labels` rows of each label, the remainder from all other rows, and shuffle them.

    A label with fewer rows contributes all of them. Raises InputError for fewer shots than labels.
    """
    by_label, chosen = pool.by_label, list[int]()
    if len(by_label) > shots:
        raise InputError.of(
            "shots",
            shots,
            f"stratified sampling needs a row of each of the {len(by_label)} labels; use at least "
            f"{len(by_label)}, or draw at random",
        )
    for rows in by_label.values():
        chosen += draw.sample(rows, min(shots // len(by_label), len(rows)))
    taken = set(chosen)
    chosen += draw.sample([row for row in range(len(pool)) if row not in taken], shots - len(chosen))
    draw.shuffle(chosen)
    return Choice(chosen, ordered=True)


_BUILT_IN = {
    "random": SelectionMethod(uniform, "rows drawn uniformly", "the baseline of every table"),
    "stratified": SelectionMethod(
        stratified, "equal numbers of each label, drawn uniformly", "a usual baseline", balances=True
    ),
    "first": SelectionMethod(
        first, "the first rows, in the order of the file", "a usual baseline", in_file_order=True, draws=False
    ),
}
METHODS: Registry[SelectionMethod] = Registry("selections", _BUILT_IN, instance_of(SelectionMethod))
# By the names of `Reads`: functions that give a pool these parts. Their arguments are the engine, the `PoolRows`, the
# pool, all parts that the method reads, the queries, the conversation, the cache, and the receiver of progress.
READERS: Registry[Callable[..., Pool]] = Registry("readers", {}, instance_of(FunctionType))


def selection_method(name: str, field: str = "sampling") -> SelectionMethod:
    """The method of this name; raises InputError for an unknown name, and, as `sampling`, if it needs a model."""
    names = without_model() if field == "sampling" else list(METHODS)
    if name not in names:
        *others, last = names
        raise InputError.of(field, name, f"use {', '.join(others)} or {last}")
    return METHODS[name]


def without_model() -> list[str]:
    """The names of the methods that need no model."""
    return [name for name, method in METHODS.items() if not method.reads]


Sampling = Annotated[str, named_by(selection_method)]
"""The name of a registered selection method that needs no model, validated by pydantic."""
