"""The checks of scikit-learn's `check_estimator`, on a classifier that reads numbers as text.

The checks fit rows of numbers, which a classifier of texts refuses; so they run on a subclass that writes numbers down.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.families import write_model
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from deepthink_cli.plugins.sklearn.classifier import DeepThinkingClassifier

ROUNDING = "scores are float32: their seventh digit depends on the texts that are scored together"
EXPECTED = {"check_methods_sample_order_invariance": ROUNDING, "check_methods_subset_invariance": ROUNDING}


class NumbersClassifier(DeepThinkingClassifier):
    """Reads each row of numbers as a text."""

    def fit(self, X: Any, y: Any) -> NumbersClassifier:
        features = validate_data(self, X)
        super().fit(_texts(features), y)
        self.n_features_in_ = features.shape[1]
        return self

    def predict_log_proba(self, X: Any) -> Any:
        check_is_fitted(self)
        return super().predict_log_proba(_texts(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array, tags.input_tags.string = False, True, False
        tags.classifier_tags.poor_score = True  # a random model does not understand numbers
        return tags


def _texts(features: Any) -> list[str]:
    return [" ".join(f"{value:.2f}" for value in row) for row in features]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random model `tiny` that holds long rows of numbers."""
    folder = tmp_path_factory.mktemp("checks")
    write_model(folder / "tiny", "llama", max_position_embeddings=8192)
    return folder


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [NumbersClassifier("tiny", shots=6, iterations=2, random_state=0)], expected_failed_checks=lambda _: EXPECTED
)
def test_the_estimator_passes_the_checks_of_scikit_learn(
    estimator: NumbersClassifier, check: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    check(estimator)


def test_the_documentation_lists_the_checks_that_fail() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"`(check_\w+)`", page)) == sorted(["check_estimator", *EXPECTED])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_classifier_of_texts_has_the_tags_of_one() -> None:
    tags = DeepThinkingClassifier().__sklearn_tags__().input_tags
    assert (tags.string, tags.one_d_array, tags.two_d_array) == (True, True, False)
    check_estimator(DeepThinkingClassifier())
