"""Classifiers without in-context learning, trained on the same labelled rows and judged by the same folds.

They are scikit-learn's logistic regressions with default settings. The features are TF-IDF weights of words, which need
no language model, the mean of the model's last hidden states over a row's tokens, read without demonstrations, or the
embeddings of a sentence encoder that the user names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any
from warnings import catch_warnings

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.io.cache import Store
from deepthink_cli.plugins.rivals.registry import EncoderOptions
from deepthink_cli.selection.pool import PoolRows
from deepthink_cli.selection.registry import READERS, Pool
from deepthink_cli.tuning.plan import TunePlan
from deepthink_cli.tuning.rivals import Rival

WORDS = r"\w+|[^\w\s]+"  # any text that is not blank has a match
STEPS = 1_000  # the most steps of the optimizer, which needs about a hundred


def judge(plan: TunePlan, engine: Engine, options: EncoderOptions, store: Store | None, tell: Tell) -> Iterator[Rival]:
    """Judge each classifier by cross-validation.

    None is judged if rows have candidates of their own, or without scikit-learn. If the engine gives no hidden states,
    their classifier is left out with a note. Raises InputError for a named encoder that cannot be loaded.
    """
    if not plan.rows.pool.labels:
        return
    if find_spec("sklearn") is None:
        tell(Note("no classifier is trained for comparison: scikit-learn is not installed (extra sklearn)"))
        return
    named = options.rival
    encoders = {} if named is None else {f"logistic regression on {named}": partial(embeddings, named)}
    for name, features in (RIVALS | encoders).items():
        started = time.perf_counter()
        try:
            untrained, inputs = features(engine, plan.rows.pool, plan.rows.queries, store)
        except InputError as error:
            if name in encoders:
                raise
            tell(Note(f"not tried: {name}: {error}"))
            continue
        right = _right(plan, untrained, inputs)
        yield Rival(name, right, len(plan.rows), time.perf_counter() - started, name in encoders)


Untrained = Callable[[], Any]  # makes a classifier of scikit-learn
Inputs = Sequence[Any]  # the classifier's input for every row


def words(_engine: Engine, pool: PoolRows, queries: Sequence[Query], _store: Store | None) -> tuple[Untrained, Inputs]:
    """Logistic regression on TF-IDF weights, and the rows' texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = [pool.template.query(query.text) for query in queries]
    return lambda: make_pipeline(TfidfVectorizer(token_pattern=WORDS), LogisticRegression(max_iter=STEPS)), texts


def states(engine: Engine, pool: PoolRows, queries: Sequence[Query], store: Store | None) -> tuple[Untrained, Inputs]:
    """Logistic regression on standardised features, and each row's mean hidden state (W,); raises as the reader."""
    if "tokens" not in READERS:
        raise InputError("nothing here reads hidden states of rows")
    tokens = READERS["tokens"](engine, pool, Pool(queries), ("tokens",), (), None, store, silent).tokens
    assert tokens is not None
    means = [of_row.mean(axis=0) for of_row in tokens]
    return standardised, means


def standardised() -> Any:
    """Logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=STEPS))


def embeddings(
    encoder: str, _engine: Engine, pool: PoolRows, queries: Sequence[Query], _store: Store | None
) -> tuple[Untrained, Inputs]:
    """Logistic regression on standardised embeddings of the rows' texts (W,), by a model of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    texts = ["\n".join(pool.template.values(query.text).values()) for query in queries]
    try:
        found = SentenceTransformer(encoder, device="cpu").encode(texts, show_progress_bar=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError.of("rival", encoder, f"cannot be loaded as a sentence encoder: {reason}") from error
    return standardised, list(found)


RIVALS: dict[str, Callable[..., tuple[Untrained, Inputs]]] = {
    "logistic regression on TF-IDF weights of words": words,
    "logistic regression on mean hidden states": states,
}


def _right(plan: TunePlan, untrained: Untrained, inputs: Inputs) -> int:
    """The number of rows that are labelled correctly after training on the other folds.

    If the other folds have a single label, it is the answer to every row.
    """
    gold, right = plan.rows.gold, 0
    for fold in plan.folds:
        inside = [row for row in range(len(plan.rows)) if row not in fold]
        labels = [gold[inside[0]]] * len(fold)
        if len({gold[row] for row in inside}) > 1:
            with catch_warnings(action="ignore"):  # of many labels with few rows
                classifier = untrained().fit([inputs[row] for row in inside], [gold[row] for row in inside])
            labels = classifier.predict([inputs[row] for row in fold])
        right += sum(int(label) == gold[row] for label, row in zip(labels, fold, strict=True))
    return right
