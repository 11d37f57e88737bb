"""The classifier for scikit-learn."""

from __future__ import annotations

import pickle
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import REVIEWS, TEMPLATE
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Method,
    load_memory,
    load_model,
    predict,
    save_memory,
    think,
    tokenize_demonstrations,
)
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.sklearn.classifier import DeepThinkingClassifier, engine_of

TEXTS, LABELS = [text for text, _ in REVIEWS], [label for _, label in REVIEWS]
QUERIES = ["a moving and lively film", "stale jokes and flat dialogue", "kind"]
MANY = [f"{word} film {number}" for number in range(3) for word in ("a warm", "a dull", "a funny", "a lifeless")]
KINDS = ["good", "bad"] * 6
READ = [*TEXTS, *(f"{text}, {end}" for text in MANY for end in ("they say", "we think"))]  # 28 rows
GOLD = [*LABELS, *(["positive"] * 2 + ["negative"] * 2) * 6]


def classifier(**changes: Any) -> DeepThinkingClassifier:
    return DeepThinkingClassifier(**{"template": TEMPLATE, "iterations": 2, **changes})


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_model(device="cpu")


@pytest.fixture(scope="module")
def fitted() -> DeepThinkingClassifier:
    return classifier(keep="all").fit(TEXTS, LABELS)


def test_the_classifier_predicts_what_a_memory_of_its_rows_predicts(
    engine: Engine, fitted: DeepThinkingClassifier
) -> None:
    given = DemonstrationSet.of(map(Example, TEXTS, LABELS), TEMPLATE, ["negative", "positive"])
    *_, memory = think(engine, tokenize_demonstrations(engine.tokenizer, given), Method(2, Gate(0.01)))
    expected = list(predict(engine, memory, QUERIES))
    assert fitted.predict(QUERIES).tolist() == [each.label for each in expected]
    assert fitted.predict_proba(QUERIES).max(axis=1) == pytest.approx([each.probability for each in expected])
    assert fitted.memory_.provenance == memory.provenance


def test_the_stages_are_the_stored_iterations(fitted: DeepThinkingClassifier) -> None:
    first, last = fitted.staged_predict_proba(QUERIES)
    assert (last == fitted.predict_proba(QUERIES)).all()
    assert first == pytest.approx(classifier(iterations=1).fit(TEXTS, LABELS).predict_proba(QUERIES))
    assert [each.tolist() for each in fitted.staged_predict(QUERIES)][1] == fitted.predict(QUERIES).tolist()
    assert [memory.iteration for memory in fitted.memories_] == [1, 2]


@pytest.mark.parametrize(
    "form",
    [np.array, tuple, pd.Series, lambda texts: np.array(texts)[:, None], lambda texts: pd.DataFrame({"review": texts})],
    ids=["array", "tuple", "series", "column", "frame"],
)
def test_texts_may_come_in_any_form(form: Any, fitted: DeepThinkingClassifier) -> None:
    other = classifier().fit(form(TEXTS), pd.Series(LABELS))
    assert (other.predict_proba(form(QUERIES)) == fitted.predict_proba(QUERIES)).all()
    assert other.n_features_in_ == 1


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1, 0, 1, 0], ("0", "1")),
        ([True, False, True, False], ("false", "true")),
        (np.array([2.0, 1.0, 2.0, 1.0]), ("1.0", "2.0")),
        (np.array([2, 1, 2, 1], dtype=object), ("1", "2")),
    ],
)
def test_labels_of_any_kind_are_predicted_as_they_were_given(labels: Any, words: tuple[str, ...]) -> None:
    fitted = classifier().fit(TEXTS, labels)
    assert fitted.classes_.tolist() == sorted(set(np.asarray(labels).tolist()))
    assert fitted.memory_.provenance.demonstrations.labels == words
    assert set(fitted.predict(QUERIES).tolist()) <= set(fitted.classes_.tolist())


def test_the_model_reads_label_words_in_place_of_labels(fitted: DeepThinkingClassifier) -> None:
    other = classifier(label_words={1: "positive", 0: "negative"}).fit(TEXTS, [1, 0, 1, 0])
    assert (other.predict_proba(QUERIES) == fitted.predict_proba(QUERIES)).all()
    assert other.predict(QUERIES).tolist() == [int(label == "positive") for label in fitted.predict(QUERIES)]


def test_a_clone_has_the_parameters_and_no_memory(fitted: DeepThinkingClassifier) -> None:
    parameters = {"template": Template(TEMPLATE), "update": Gate(0.1, 0.9), "model_options": {"device": "cpu"}}
    other = clone(classifier(**parameters).fit(TEXTS, LABELS))
    assert {name: other.get_params()[name] for name in parameters} == parameters
    assert not hasattr(other, "memory_")
    with pytest.raises(NotFittedError):
        other.predict(QUERIES)


def test_a_pickle_holds_the_memory_and_not_the_weights(fitted: DeepThinkingClassifier) -> None:
    stored = pickle.dumps(fitted)
    assert len(stored) < 1.1 * sum(memory.nbytes for memory in fitted.memories_) + 20_000
    expected = fitted.predict_proba(QUERIES)
    engine_of.cache_clear()  # as in another process
    assert (pickle.loads(stored).predict_proba(QUERIES) == expected).all()


def test_classifiers_of_a_process_share_a_model(fitted: DeepThinkingClassifier) -> None:
    search = GridSearchCV(classifier(), {"eta": [0.01, 0.1]}, cv=2, error_score="raise").fit(MANY, KINDS)
    assert search.best_estimator_._engine() is fitted._engine()


def test_some_of_the_rows_can_be_chosen_as_demonstrations() -> None:
    fitted = classifier(shots=4, random_state=3).fit(MANY, KINDS)
    provenance = fitted.memory_.provenance
    assert (provenance.selected.method, provenance.selected.shots, provenance.selected.seed) == ("stratified", 4, 3)
    assert sorted(example.label for example in provenance.demonstrations.examples) == ["bad", "bad", "good", "good"]
    again = classifier(shots=4, random_state=3).fit(MANY, KINDS)
    assert again.memory_.provenance == provenance
    generator = classifier(shots=4, random_state=np.random.RandomState(3)).fit(MANY, KINDS)
    assert len(generator.memory_.provenance.demonstrations.examples) == 4


def test_a_calibration_corrects_every_row_by_the_bias_of_the_rows_that_are_not_read() -> None:
    chosen = {"shots": 4, "demos_by": "first"}
    raw = classifier(**chosen).fit(READ, GOLD)
    bias = np.log(raw.predict_proba(READ[4:]).mean(axis=0))
    corrected = classifier(**chosen, calibrate="batch").fit(READ, GOLD)
    expected = raw.predict_log_proba(QUERIES) - bias
    expected -= np.logaddexp.reduce(expected, axis=1, keepdims=True)
    assert corrected.predict_log_proba(QUERIES) == pytest.approx(expected, abs=1e-5)
    for number, query in enumerate(QUERIES):  # a row's neighbours do not count
        assert corrected.predict_log_proba([query])[0] == pytest.approx(expected[number], abs=1e-5)
    assert (classifier(**chosen, calibrate="none").fit(READ, GOLD).predict_log_proba(QUERIES) != expected).all()


@pytest.mark.parametrize("name", ["contextual", "domain", "pmi", "prior", "fitted", "centroid", "head"])
def test_the_memory_of_the_classifier_stores_its_correction(name: str, engine: Engine, tmp_path: Path) -> None:
    fitted = classifier(calibrate=name, shots=4, demos_by="first").fit(READ, GOLD)
    save_memory(fitted.memory_, tmp_path / "mem.safetensors")
    expected = list(predict(engine, load_memory(tmp_path / "mem.safetensors"), QUERIES))
    assert fitted.predict(QUERIES).tolist() == [each.label for each in expected]
    assert fitted.predict_proba(QUERIES).max(axis=1) == pytest.approx([each.probability for each in expected])


@pytest.mark.parametrize("name", ["batch", "prior", "fitted"])
def test_a_bias_of_rows_needs_twenty_that_are_not_read(name: str) -> None:
    with pytest.raises(ValueError, match=f"^calibrate {name}: is estimated from the rows that are not read, .* are 0;"):
        classifier(calibrate=name).fit(READ, GOLD)
    with pytest.raises(ValueError, match=r"there are 19; give 20 rows more than shots, or use contextual"):
        classifier(calibrate=name, shots=4, demos_by="first").fit(READ[:23], GOLD[:23])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eta": 2}, "^eta 2: the gate is a number in"),
        ({"eta": 0.1, "update": Gate(0.1, 0.9)}, "eta 0.1: not with update, .* omit one of the two"),
        ({"template": "no fields"}, "needs a text field and a label field"),
        ({"scoring": {"score": "best"}}, "^score '?best'?: use sum, mean, end"),
        ({"shots": 4.5}, "^shots 4.5: a number of demonstrations, 1 or more"),
        ({"shots": 9}, "^shots 9: X has 4 rows to choose from"),
        ({"shots": 1}, "^shots 1: stratified sampling needs .* or draw at random"),
        ({"model": "./nowhere"}, "^model ./nowhere: no such model directory"),
        ({"demos_by": "luck", "shots": 2}, "^demos_by luck: use"),
        ({"label_words": {"positive": "good"}}, "no word for the label 'negative'"),
        (
            {"label_words": {"negative": "good", "positive": "good "}},
            "'negative' and 'positive' are both read as 'good'",
        ),
        ({"model_options": {"size": 3}}, "size"),
    ],
)
def test_a_wrong_parameter_is_an_error_of_value_at_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        classifier(**changes).fit(TEXTS, LABELS)
    assert isinstance(error.value, InputError)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a single text", "expected a list of texts, found a str"),
        ([], "0 samples"),
        (["fine", None, "fine", " "], "X row 1: 'review' is empty; .*\nX row 3: 'review' is empty"),
        ([0.5, "fine", 3, "fine"], "X row 0: 'review' is a float; .*\nX row 2: 'review' is a int"),
        (pd.Series(["fine", np.nan, "fine", "fine"]), "X row 1: 'review' is empty"),
        (np.array([["a", "b"]] * 4), "X has 2 features, but DeepThinkingClassifier is expecting 1"),
        ([{"text": "a"}] * 4, "X row 0: field 'review' is missing; the row has text"),
        (["one", "two", "three"], "inconsistent numbers of samples"),
    ],
)
def test_wrong_texts_are_named_by_their_rows(texts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier().fit(texts, LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "requires y to be passed"),
        (["a"] * 4, "one class, 'a'"),
        (["a", None, "b", "b"], "y row 1: the label is None"),
        ([0.5, 0.25, 0.75, 1.0], "Unknown label type"),
        (["a", "a ", "b", "b"], "'a' and 'a ' are both read as 'a'"),
        (["a", " ", "b", "b"], "label_words: .* is empty"),
    ],
)
def test_wrong_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier().fit(TEXTS, labels)


def test_rows_that_do_not_fit_the_model_are_refused_with_the_number_that_would() -> None:
    with pytest.raises(ValueError, match=r"the first \d+ of 1200 .* would fit, more with positions restarted"):
        classifier(iterations=5).fit(MANY * 100, KINDS * 100)


def test_another_model_than_the_memory_was_made_by_is_refused(fitted: DeepThinkingClassifier, models: Any) -> None:
    other = pickle.loads(pickle.dumps(fitted)).set_params(model=models("llama"))
    with pytest.raises(ValueError, match="made by another model"):
        other.predict(QUERIES)


def test_without_scikit_learn_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "deepthink_cli.plugins.sklearn.classifier")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ImportError, match=r"in a checkout of deepthink: pip install '\.\[sklearn\]'"):
        import_module("deepthink_cli.plugins.sklearn.classifier")


def test_a_template_with_several_fields_reads_columns_by_name_or_in_order() -> None:
    frame = pd.DataFrame({"year": ["1999", "2001"], "id": [1, 2], "weather": ["rain", "sun"]})
    by_name = classifier(template="{weather} in {year}: {label}").fit(frame, ["wet", "dry"])
    in_order = classifier(template="{weather} in {year}: {label}").fit(
        frame[["weather", "year"]].values, ["wet", "dry"]
    )
    assert by_name.memory_.provenance == in_order.memory_.provenance
    rows = frame[["weather", "year"]].to_dict("records")
    assert by_name.predict(frame).tolist() == in_order.predict(rows).tolist()
    assert by_name.n_features_in_ == 2
