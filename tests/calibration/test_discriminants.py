"""The head on hidden states, against scikit-learn's discriminants and against the statement of its weights."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from deepthink_cli.calibration.discriminants import SHRINKAGES, discriminants
from deepthink_cli.calibration.nearest_mean import nearest_mean
from deepthink_cli.scoring.heads import LinearHead, observed_layers
from deepthink_cli.scoring.softmax import log_softmax

LinearDiscriminantAnalysis = pytest.importorskip("sklearn.discriminant_analysis").LinearDiscriminantAnalysis

Floats = NDArray[np.float64]
LABELS, LAYERS, WIDTH = 3, 2, 40


def rows_of(count: int, seed: int = 0) -> tuple[Floats, Floats, list[int]]:
    """States (n, L, W) of rows of three labels, far from the origin, scores that know little, and the labels."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(LABELS, LAYERS, WIDTH))
    gold = [place % LABELS for place in range(count)]
    states = 30 + centres[gold] * 0.6 + draw.normal(size=(count, LAYERS, WIDTH)) * np.linspace(0.2, 3, WIDTH)
    scores = draw.normal(size=(count, LABELS)) + np.eye(LABELS)[gold]
    return states, scores, gold


def by_peer(states: Floats, gold: list[int], new: Floats, shrinkage: float) -> Floats:
    """The mean log-posterior over layers, by scikit-learn."""
    found = []
    for layer, of_new in zip(states.swapaxes(0, 1), new.swapaxes(0, 1), strict=True):
        peer = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(layer, gold)
        found.append(peer.predict_log_proba(of_new))
    mean: Floats = np.mean(found, axis=0)
    return mean


def test_the_scores_are_log_posteriors_of_scikit_learns_discriminants_and_the_models_scores() -> None:
    """For one of the shrinkages: a times the first, c times the second, and a constant of the label and of the row."""
    states, scores, gold = rows_of(45)
    new, of_new, _ = rows_of(200, seed=1)
    head = discriminants(states, scores, gold, range(45))
    found = head.scores(new, of_new)
    differences = found - found[:, :1]
    left = []
    for shrinkage in SHRINKAGES:
        peer, logs = by_peer(states, gold, new, shrinkage), log_softmax(of_new)
        for label in (1, 2):
            known = [each[:, label] - each[:, 0] for each in (peer, logs)]
            basis = np.stack([*known, np.ones(len(new))], axis=1)
            _, residual, *_ = np.linalg.lstsq(basis, differences[:, label], rcond=None)
            left.append((shrinkage, float(residual[0])))
    exact = {shrinkage for shrinkage, residual in left if residual < 1e-10}
    assert len(exact) == 1
    assert min(residual for shrinkage, residual in left if shrinkage not in exact) > 1e-6


def test_the_probabilities_are_those_of_rows_that_the_discriminants_have_not_seen() -> None:
    """The labels of the fitted rows would be certain: forty numbers separate thirty rows."""
    states, scores, gold = rows_of(30)
    new, of_new, true = rows_of(600, seed=2)
    found = log_softmax(discriminants(states, scores, gold, range(30)).scores(new, of_new))
    confidence, right = np.exp(found.max(axis=1)), found.argmax(axis=1) == np.array(true)
    assert confidence.mean() == pytest.approx(right.mean(), abs=0.12)
    assert right.mean() > 0.6


def test_copies_of_a_row_do_not_vouch_for_each_other() -> None:
    """States that tell the rows apart and nothing else: with copies in other folds they seem to tell labels."""
    draw = np.random.default_rng(3)
    states, gold = draw.normal(size=(30, LAYERS, WIDTH)), draw.integers(0, 2, 30).tolist()
    twice, labels, scores = np.concatenate([states, states]), [*gold, *gold], np.zeros((60, 2))
    together = discriminants(twice, scores, labels, [*range(30), *range(30)])
    apart = discriminants(twice, scores, labels, range(60))
    new = draw.normal(size=(200, LAYERS, WIDTH))
    spread = [np.ptp(log_softmax(each.scores(new, np.zeros((200, 2))))[:, 0]) for each in (together, apart)]
    assert spread[0] < spread[1] / 2


def test_a_label_without_rows_is_never_given() -> None:
    states, scores, gold = rows_of(30)
    wider = np.concatenate([scores, np.full((30, 1), 5.0)], axis=1)
    for kind in (discriminants, nearest_mean):
        assert set(kind(states, wider, gold, range(30)).scores(states, wider).argmax(axis=1)) <= {0, 1, 2}


def test_a_stored_head_scores_as_before_up_to_a_constant_of_the_row() -> None:
    states, scores, gold = rows_of(30)
    head = discriminants(states, scores, gold, range(30))
    stored = head.stored((3, 4), ("a", "b", "c"))
    before, after = (log_softmax(each.scores(states, scores)) for each in (head, LinearHead.of(stored)))
    assert stored.layers == (3, 4)
    assert after == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize(
    ("depth", "layers"), [(1, (1,)), (2, (1, 2)), (12, (6, 8, 9, 10, 12)), (32, (16, 20, 24, 28, 32))]
)
def test_five_layers_of_the_upper_half_are_observed(depth: int, layers: tuple[int, ...]) -> None:
    assert observed_layers(depth) == layers


def test_of_many_rows_a_sample_is_fitted_that_has_every_label(monkeypatch: pytest.MonkeyPatch) -> None:
    states, scores, gold = rows_of(200)
    rare = np.concatenate([scores, np.zeros((200, 1))], axis=1)
    gold[:2] = [3, 3]
    whole = discriminants(states, rare, gold, range(200)).scores(states, rare)
    monkeypatch.setattr("deepthink_cli.calibration.discriminants.MOST", 60)
    sampled = discriminants(states, rare, gold, range(200))
    assert np.isfinite(sampled.bias).all()
    assert (sampled.scores(states, rare) != whole).any()
    assert (sampled.scores(states, rare).argmax(axis=1)[2:] == np.array(gold[2:])).mean() > 0.8
