"""Classifiers without in-context learning, which `tune` judges by the same folds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import TEMPLATE
from helpers.tuned import LABELS, MANY, WORDS, labelled, planned
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from deepthink_cli import Engine, Template
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note
from deepthink_cli.plugins.selection.observer import Observer
from deepthink_cli.tuning.tune import tune


def test_classifiers_are_trained_without_the_rows_that_they_label(llama: Engine) -> None:
    """Words that tell the label are learned; words that no other fold has teach nothing."""
    told = [(f"{text}, {'good' if label == LABELS[1] else 'bad'}", label) for text, label in MANY]
    words, states = tune(planned(llama, labelled(told), shots=4), engine=llama).rivals
    assert (words.right, words.rows) == (len(MANY), len(MANY))
    assert 0 <= states.right <= len(MANY)
    words_alone = labelled([(word, LABELS[place % 2]) for place, word in enumerate(WORDS)])
    report = tune(planned(llama, words_alone), engine=llama)
    assert report.rivals[0].right < len(WORDS)
    assert report.as_json()["rivals"][0]["accuracy"] == report.rivals[0].right / len(WORDS)


def test_a_named_sentence_encoder_is_a_rival_whose_embeddings_are_classified(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in, whose embedding is the number of the letters r and l: the words of this test differ in it."""

    class Encoder:
        def __init__(self, name: str, device: str) -> None:
            if name == "./nowhere":
                raise OSError("no such folder")

        def encode(self, texts: Sequence[str], show_progress_bar: bool) -> Any:
            return np.array([[text.count("r"), text.count("l")] for text in texts], dtype=float)

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Encoder))
    monkeypatch.setattr("deepthink_cli.plugins.rivals.registry.find_spec", lambda name: name)
    rows = [(f"a {'rrrr' if place % 2 else 'llll'} {word} film", LABELS[place % 2]) for place, word in enumerate(WORDS)]
    *_, rival = tune(planned(llama, labelled(rows), own={"rival": "./encoder"}), engine=llama).rivals
    assert (rival.name, rival.right) == ("logistic regression on ./encoder", len(WORDS))
    with pytest.raises(InputError, match=r"rival ./nowhere: cannot be loaded as a sentence encoder: no such folder"):
        tune(planned(llama, labelled(rows), own={"rival": "./nowhere"}), engine=llama)


def test_a_rival_without_its_library_is_refused_before_the_model_is_loaded(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.rivals.registry.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"rival ./encoder: needs more: .*pip install '.\[rival\]'"):
        planned(llama, own={"rival": "./encoder"})


def test_the_head_on_hidden_states_is_logistic_regression_on_their_mean(llama: Engine) -> None:
    plan = planned(llama, labelled(MANY), shots=4)
    queries, right = plan.rows.queries, 0
    tokens = Observer(llama, Template(TEMPLATE), queries, every_token=True)(queries).tokens
    assert tokens is not None
    means = np.array([states.mean(axis=0) for states in tokens])
    for fold in plan.folds:
        others = [row for row in range(len(queries)) if row not in fold]
        scaler = StandardScaler().fit(means[others])
        head = LogisticRegression(max_iter=1000).fit(scaler.transform(means[others]), np.array(plan.rows.gold)[others])
        right += int((head.predict(scaler.transform(means[list(fold)])) == np.array(plan.rows.gold)[list(fold)]).sum())
    assert tune(plan, engine=llama).rivals[1].right == right


def test_without_scikit_learn_no_classifier_is_compared(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.rivals.classifiers.find_spec", lambda name: None)
    told: list[object] = []
    assert tune(planned(llama), engine=llama, tell=told.append).rivals == ()
    assert [str(each) for each in told if isinstance(each, Note) and "scikit-learn" in each.text]
