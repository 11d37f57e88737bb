"""scikit-learn: a classifier of texts that reads its training rows as demonstrations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from inspect import signature
from operator import index
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np

from deepthink_cli.calibration.registry import NONE, calibration
from deepthink_cli.data.examples import DemonstrationSet, Example, Query
from deepthink_cli.data.field_warnings import alike
from deepthink_cli.data.template import Chat, Template
from deepthink_cli.errors import InputError, installing, option
from deepthink_cli.meaning import check_meaning, options_of
from deepthink_cli.method import Method, MethodOptions
from deepthink_cli.model.options import POCKET, TOY, ModelOptions
from deepthink_cli.plugins.sklearn.texts import classes_of, texts_of, words_of
from deepthink_cli.scoring.scoring import Scoring
from deepthink_cli.scoring.softmax import log_softmax
from deepthink_cli.selection.registry import selection_method
from deepthink_cli.updates import UpdateRule

if TYPE_CHECKING:
    from deepthink_cli.calibration.registry import Calibration
    from deepthink_cli.corrections import Calibrated
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.events import Event
    from deepthink_cli.memory import Memory
    from deepthink_cli.provenance import Selected, TokenizedDemonstrations
    from deepthink_cli.scoring.softmax import Floats


class InvalidValue(InputError, ValueError):
    """An `InputError` that is a `ValueError`."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise an `InputError` as a ValueError."""
    try:
        yield
    except InputError as error:
        raise InvalidValue(*error.problems) from error


try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError(f"scikit-learn is not installed; {installing('sklearn')}") from error


TEMPLATE = "Text: {text}\nLabel: {label}"


@lru_cache(maxsize=2)
def engine_of(options: ModelOptions) -> Engine:
    """The model of these options, which all classifiers of this process share; raises as `load_model` does."""
    from deepthink_cli.engine.opening import find_model, load

    return load(find_model(options, _warn), _warn)


class DeepThinkingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    r"""A frozen language model that reads the training rows T times, and labels texts after them (section 3.1).

    The weights are not part of the estimator: they are loaded when they are first needed, once for all classifiers of
    a process.

    Args:
        model: `pocket`, a hub id, a local directory or GGUF file.
        iterations: T, the number of readings; 1 is plain in-context learning.
        eta: the step of the gate (Eq. 4), in (0, 1].
        positions: `continued` or `restarted`, of the readings after the first.
        update: an update rule in place of the gate of the paper; `eta` must then be left at its default.
        template: a prompt that ends with the label's field, as `Review: {text}\nSentiment: {label}`.
        chat: makes the rows turns of a conversation, for instruct models.
        label_words: what the model reads for each class; if None, the class as it is in y: a number, a text, or `true`
            and `false`.
        shots: how many rows are read, chosen by `demos_by`; None reads all, in their order.
        demos_by: how the `shots` rows are chosen, a name of `deepthink list selections`.
        random_state: a seed or generator for that choice; an integer is the seed of `deepthink select`.
        scoring: options of scoring by their names in `deepthink predict`, as `{"score": "end", "reread": 2}`.
        calibrate: the name of a calibration, whose bias is estimated in `fit` and stored with the memory: from texts of
            its own, or from the rows of X that are not read, of which 20 are needed (`shots`).
        keep: the iterations that are stored: `last`, `all`, or as in `1,3,5`.
        model_options: further options of `load_model`, as `{"dtype": "bfloat16"}`.

    Attributes:
        classes_: the labels, sorted, (C,).
        n_features_in_: the number of text fields of the template.
        memory_: the memory after the last stored iteration, for `save_memory`.
        memories_: the memories of all stored iterations.
    """

    def __init__(
        self,
        model: str = "pocket",
        *,
        iterations: int = 5,
        eta: float = 0.01,
        positions: str = "continued",
        update: UpdateRule | None = None,
        template: str | Template = TEMPLATE,
        chat: Chat | None = None,
        label_words: Mapping[Any, str] | None = None,
        shots: int | None = None,
        demos_by: str = "stratified",
        random_state: Any = None,
        scoring: Mapping[str, Any] | None = None,
        calibrate: str | None = None,
        keep: str = "last",
        model_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.iterations = iterations
        self.eta = eta
        self.positions = positions
        self.update = update
        self.template = template
        self.chat = chat
        self.label_words = label_words
        self.shots = shots
        self.demos_by = demos_by
        self.random_state = random_state
        self.scoring = scoring
        self.calibrate = calibrate
        self.keep = keep
        self.model_options = model_options

    @property
    def memory_(self) -> Memory:
        """The memory after the last stored iteration."""
        memory: Memory = self.memories_[-1]
        return memory

    def fit(self, X: Any, y: Any) -> DeepThinkingClassifier:
        """Read texts and their labels T times.

        X is a list, a one-dimensional array or a Series of strings, or has a column for each text field of the
        template; y holds n labels. Raises ValueError with every mistake found, and for rows that do not fit the model.
        """
        from deepthink_cli.thinking import think

        if self.model == POCKET:
            warn(f"{TOY}; give a real model as `model`", UserWarning, stacklevel=2)
        with value_errors():
            method, kept = self._method()
            template = self.template if isinstance(self.template, Template) else Template(self.template)
            texts = texts_of(X, template.text_fields)
            classes, places = classes_of(y, texts)
            words = words_of(classes, self.label_words)
            for message in alike(words):
                warn(message, UserWarning, stacklevel=2)
            examples = [Example(text, words[place]) for text, place in zip(texts, places, strict=True)]
            given, selected = self._chosen(DemonstrationSet.of(examples, template, words, self.chat))
            demonstrations = self._tokenized(given, method)
            memories = list(think(self._engine(), demonstrations, method))
            queries = [Query(text, words, words[place]) for text, place in zip(texts, places, strict=True)]
            correction = self._correction([memories[iteration - 1] for iteration in sorted({1, *kept})], queries)
        self.classes_ = classes
        self.n_features_in_ = len(template.text_fields)
        self.memories_ = tuple(
            memories[iteration - 1].recorded(selected=selected, calibrated=correction) for iteration in kept
        )
        return self

    def predict(self, X: Any) -> Any:
        """The likeliest label of every text, (n,)."""
        check_is_fitted(self)
        return self.classes_[self.predict_log_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> Any:
        """The share of every label among the labels, (n, C), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithm of `predict_proba`, (n, C)."""
        check_is_fitted(self)
        return self._log_probabilities(X, self.memories_[-1:])[0]

    def staged_predict(self, X: Any) -> Iterator[Any]:
        """`predict` after each of the stored iterations (`keep`), all of which are scored together."""
        for probabilities in self.staged_predict_proba(X):
            yield self.classes_[probabilities.argmax(axis=1)]

    def staged_predict_proba(self, X: Any) -> Iterator[Any]:
        """`predict_proba` after each of the stored iterations (`keep`), all of which are scored together."""
        check_is_fitted(self)
        yield from map(np.exp, self._log_probabilities(X, self.memories_))

    def __sklearn_tags__(self) -> Any:
        """The inputs are texts."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        return tags

    def _method(self) -> tuple[Method, tuple[int, ...]]:
        """The method and the iterations to keep."""
        options = MethodOptions.checked(
            iterations=self.iterations, eta=self.eta, positions=self.positions, keep=self.keep
        )
        values = self.get_params(deep=False)
        defaults = signature(type(self)).parameters
        given = [name for name in options_of("sklearn") if values[name] != defaults[name].default]
        check_meaning("sklearn", given, values)
        if self.update is None:
            return options.method, options.kept
        return replace(options.method, update=self.update), options.kept

    def _engine(self) -> Engine:
        return engine_of(ModelOptions.checked(**{**(self.model_options or {}), "model": os.fspath(self.model)}))

    def _chosen(self, given: DemonstrationSet) -> tuple[DemonstrationSet, Selected | None]:
        """The rows that are read: all, or `shots` of them."""
        from deepthink_cli.selection.choice import choose_demonstrations
        from deepthink_cli.selection.options import SelectOptions
        from deepthink_cli.selection.pool import PoolRows

        reads = selection_method(self.demos_by, "demos_by").reads
        if self.shots is None:
            return given, None
        try:
            shots = index(self.shots)
        except TypeError as error:
            raise InputError.of("shots", self.shots, "a number of demonstrations, 1 or more") from error
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        queries = [Query(example.text, given.labels, example.label) for example in given.examples]
        options = SelectOptions.checked(demos_by=self.demos_by, shots=shots, seed=int(seed))
        engine = self._engine()
        pool = PoolRows.of("X", queries, given.template, given.labels).fitting(engine.tokenizer, engine.limits)
        chosen = choose_demonstrations(engine if reads else None, pool, options, chat=self.chat)
        return replace(chosen.demonstrations, chat=self.chat), chosen.selected

    def _tokenized(self, given: DemonstrationSet, method: Method) -> TokenizedDemonstrations:
        """The demonstrations as tokens; raises InputError unless T readings of them, and the labels, fit the model.

        Warns of labels that can never be predicted.
        """
        from deepthink_cli.events import silent
        from deepthink_cli.model.limits import check_fit
        from deepthink_cli.model.tokens import tokenize_demonstrations
        from deepthink_cli.scoring.extended_labels import check_labels, other_score

        engine, scoring = self._engine(), self._scoring()
        for name, value in scoring.of_parts.items():
            raise InputError.of(
                "scoring", f"{name} {value}", "is of composed memories, which are not made here; omit it"
            )
        check_fit(engine.limits, engine.tokenizer, given, method.iterations, method.positions, engine.identity.id)
        demonstrations = tokenize_demonstrations(engine.tokenizer, given)
        engine.check_ids(demonstrations.token_ids, "X")
        tell = _warn if scoring.prefers_short and not self._calibration() else silent
        other = other_score(scoring, 'scoring={{"score": "{name}"}}')
        text, labels = given.examples[0].text, given.labels
        labelled = check_labels(engine.tokenizer, demonstrations, scoring, text, labels, tell, options=other)
        engine.check_ids(labelled.ids, "label_words")
        return demonstrations

    def _scoring(self) -> Scoring:
        return Scoring.of(**(self.scoring or {}))

    def _calibration(self) -> Calibration | None:
        """The calibration, if there is one."""
        return None if self.calibrate in (None, NONE) else calibration(str(self.calibrate))

    def _correction(self, memories: Sequence[Memory], rows: Sequence[Query]) -> Calibrated | None:
        """The correction of memories by the calibration, if any; raises InputError for too few rows."""
        from deepthink_cli.calibration.calibrator import calibrated_by_texts
        from deepthink_cli.calibration.labelled import by_memory, calibrated_by_rows, observed
        from deepthink_cli.calibration.notes import check_storable
        from deepthink_cli.calibration.registry import FEWEST
        from deepthink_cli.data.same_input import is_among
        from deepthink_cli.scoring.pipeline import predicted

        if (method := self._calibration()) is None:
            return None
        read, engine, scoring = memories[0].origin.demonstrations, self._engine(), self._scoring()
        check_storable(method.name, read, "the template")
        if not method.from_rows:
            return calibrated_by_texts(engine, memories, method.name, scoring)
        was_read = is_among(read.examples, read.template, read.labels)
        others = [row for row in rows if not was_read(row)]
        needed = 2 * len(read.labels) if method.of_states else FEWEST
        if len(others) < needed:
            raise InputError.of(
                "calibrate",
                method.name,
                f"is estimated from the rows that are not read, and there are {len(others)}; give {needed} rows more "
                f"than {option('shots')}, or use contextual",
            )
        measured = by_memory(predicted(observed(engine, memories, others, scoring, method.of_states)))
        return calibrated_by_rows(method, measured, memories, "X", scoring)

    def _log_probabilities(self, X: Any, memories: Sequence[Memory]) -> list[Floats]:
        """Log-probabilities (n, C) among the labels, after each of the memories."""
        from deepthink_cli.prediction.rows import answer_of
        from deepthink_cli.prediction.scorer import Scorer
        from deepthink_cli.scoring.pipeline import predicted

        with value_errors():
            scorer = Scorer.open(memories, scoring=self._scoring())
            demonstrations = scorer.demonstrations
            texts = texts_of(X, demonstrations.template.text_fields)
            queries = [Query(text, demonstrations.labels, where=f"X row {n}") for n, text in enumerate(texts)]
            parts = scorer.load(self._engine(), _warn)(queries)
            answers = [answer_of(prediction, scorer.calibrate) for part in parts for prediction in predicted(part)]
        scores = log_softmax([list(answer.scores.values()) for answer in answers])  # (n * memories, C)
        return [scores[place :: len(memories)] for place in range(len(memories))]


def _warn(event: Event) -> None:
    """Issue the warnings of a workflow as Python's."""
    from deepthink_cli.events import Warn

    if isinstance(event, Warn):
        warn(event.text, UserWarning, stacklevel=2)
