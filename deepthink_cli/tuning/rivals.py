"""Classifiers without in-context learning, trained on the same rows and judged by the same folds.

Both are logistic regressions of scikit-learn with its defaults: on TF-IDF weights of words, which need no language
model, and on the mean over a row's tokens of the model's last hidden states, read without demonstrations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.metrics import wilson
from deepthink_cli.events import Note, Tell
from deepthink_cli.selection.features import Observer
from deepthink_cli.selection.store import Store
from deepthink_cli.tuning.plan import TunePlan

WORDS = r"\w+|[^\w\s]+"  # any text that is not blank has one
STEPS = 1_000  # of the optimizer, which needs about a hundred


@dataclass(frozen=True)
class Rival:
    """A classifier, how many held-out rows of `rows` it labels correctly, and the seconds that all folds took."""

    name: str
    right: int
    rows: int
    seconds: float

    @property
    def accuracy(self) -> float:
        """The share of rows that it labels correctly."""
        return self.right / self.rows

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        ci95 = wilson(self.accuracy, self.rows)
        return {"name": self.name, "accuracy": self.accuracy, "ci95": ci95, "seconds": self.seconds}


def judge_rivals(plan: TunePlan, engine: Engine, store: Store | None, tell: Tell) -> tuple[Rival, ...]:
    """Judge both by cross-validation; none if rows have candidates of their own or scikit-learn is missing.

    That of hidden states is left out with a note where the engine gives none.
    """
    if not plan.rows.labels:
        return ()
    if find_spec("sklearn") is None:
        tell(Note("no classifier is trained for comparison: scikit-learn is not installed (extra sklearn)"))
        return ()
    kinds = {"TF-IDF and logistic regression, no model": _words, "logistic regression on mean hidden states": _states}
    rivals = []
    for name, features in kinds.items():
        started = time.perf_counter()
        try:
            classifier, inputs = features(plan, engine, store)
        except InputError as error:
            tell(Note(f"not tried: {name}: {error}"))
            continue
        right = sum(_right(plan, classifier, inputs))
        rivals.append(Rival(name, right, len(plan.rows), time.perf_counter() - started))
    return tuple(rivals)


Features = tuple[Callable[[], Any], Sequence[Any]]  # makes an untrained classifier, and its input for every row


def _words(plan: TunePlan, _engine: Engine, _store: Store | None) -> Features:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return lambda: make_pipeline(TfidfVectorizer(token_pattern=WORDS), LogisticRegression(max_iter=STEPS)), (
        plan.rows.texts
    )


def _states(plan: TunePlan, engine: Engine, store: Store | None) -> Features:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    queries = plan.rows.queries
    tokens = Observer(engine, plan.rows.pool.template, queries, every_token=True, store=store)(queries).tokens
    assert tokens is not None
    return lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=STEPS)), [
        states.mean(axis=0) for states in tokens
    ]


def _right(plan: TunePlan, untrained: Callable[[], Any], inputs: Sequence[Any]) -> Iterator[int]:
    """For every fold, how many of its rows are labelled correctly after training on the rows of the others."""
    gold = plan.rows.gold
    for fold in plan.folds:
        others = [row for row in range(len(plan.rows)) if row not in fold]
        if len({gold[row] for row in others}) == 1:  # nothing can be trained: the only label that is left
            yield sum(gold[row] == gold[others[0]] for row in fold)
            continue
        classifier = untrained().fit([inputs[row] for row in others], [gold[row] for row in others])
        labels = classifier.predict([inputs[row] for row in fold])
        yield sum(int(label) == gold[row] for label, row in zip(labels, fold, strict=True))
