"""The estimators of a bias, against the formulas of their papers computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from deepthink_cli.calibration import estimates
from deepthink_cli.calibration.discriminants import SHRINKAGES, Unlabelled, discriminants
from deepthink_cli.calibration.registry import CALIBRATIONS, calibrations
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.scoring.heads import LinearHead, observed_layers
from deepthink_cli.scoring.softmax import log_softmax

# Probabilities of two labels for three inputs; their means are 0.7 and 0.3.
THREE = [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]]


def test_a_bias_that_is_not_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "FLAT", 0)
    with pytest.raises(DeepThinkError, match="no bias fits the labels of the 3 rows: "):
        CALIBRATIONS["fitted"].bias(log_softmax(np.log(THREE)), [0, 0, 1])


@pytest.mark.parametrize(("name", "inputs"), [("pmi", 1), ("contextual", 1), ("domain", 1)])
def test_a_constant_on_the_scores_of_a_label_is_removed_exactly(name: str, inputs: int) -> None:
    draw = np.random.default_rng(1)
    rows, constant = draw.normal(size=(5, 3)), np.array([3.0, -1.0, 0.5])
    basis = draw.normal(size=(inputs, 3))

    def after(shift: object) -> object:
        logs = log_softmax(rows + shift) - CALIBRATIONS[name].bias(log_softmax(basis + shift))
        return log_softmax(logs)

    assert after(constant) == pytest.approx(after(np.zeros(3)), abs=1e-10)


@pytest.mark.parametrize("certainty", [0.5, 8])
def test_a_bias_with_a_slope_is_that_of_a_general_optimizer(certainty: float) -> None:
    draw = np.random.default_rng(5)
    gold = draw.integers(3, size=60)
    logs = log_softmax(certainty * (draw.normal(size=(60, 3)) + np.eye(3)[gold] + np.array([1, 0, 0])))

    def loss(values: Any) -> float:
        likelihood = log_softmax(np.exp(values[0]) * logs - values[1:])[range(60), gold].sum()
        return float(-likelihood + (values**2).sum() / 2)

    peer = minimize(loss, np.zeros(4), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000})
    expected = peer.x[1:] / np.exp(peer.x[0])
    assert CALIBRATIONS["fitted-slope"].bias(logs, gold.tolist()) == pytest.approx(expected, abs=1e-4)
    assert np.exp(peer.x[0]) > 1 if certainty < 1 else np.exp(peer.x[0]) < 0.5


def test_a_fitted_bias_is_that_of_logistic_regression() -> None:
    """The log-odds of two labels are an offset; without it, scikit-learn's regression on a constant has the bias."""
    gold = [0] * 12 + [1] * 4
    fitted = CALIBRATIONS["fitted"].bias(np.log(np.full((16, 2), 0.5)), gold)
    # With u = b(1) - b(0) the penalty (b(0)^2 + b(1)^2) / 2 is u^2 / 4, that of C = 2 in scikit-learn's u^2 / (2 C).
    peer = LogisticRegression(C=2, fit_intercept=False, tol=1e-10).fit(np.ones((16, 1)), gold)
    assert fitted[0] - fitted[1] == pytest.approx(peer.coef_[0, 0], abs=1e-5)


def test_a_list_of_names_is_read_in_order() -> None:
    assert calibrations("batch, none,pmi") == ("batch", "none", "pmi")
    assert calibrations(None) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bach", "calibrate bach: use none, contextual, domain, batch, pmi"),
        ("batch,", "calibrate : use none"),
        ("batch,pmi,batch", "calibrate batch,pmi,batch: batch is duplicated"),
    ],
)
def test_wrong_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrations(text)


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_only_a_bias_of_rows_needs_twenty_of_them(name: str) -> None:
    method = CALIBRATIONS[name]
    method.check_count(20)
    if not method.from_rows or method.of_states:
        method.check_count(0)
        return
    for rows in (0, 1, 19):
        with pytest.raises(InputError, match=f"^calibrate {name}: .*20 rows or more, not from {rows}; store the bias"):
            method.check_count(rows)


def test_a_calibration_that_needs_true_labels_is_named_only_where_it_is_stored() -> None:
    with pytest.raises(InputError, match=r"^calibrate fitted: needs rows with true labels: store it"):
        calibrations("batch,fitted")


LinearDiscriminantAnalysis = pytest.importorskip("sklearn.discriminant_analysis").LinearDiscriminantAnalysis

Floats = NDArray[np.float64]
LABELS, LAYERS, WIDTH = 3, 2, 40


def rows_of(count: int, seed: int = 0, apart: float = 0.6) -> tuple[Floats, Floats, list[int]]:
    """States (n, L, W) of rows of three labels, far from the origin, scores that know little, and the labels."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(LABELS, LAYERS, WIDTH))
    gold = [place % LABELS for place in range(count)]
    states = 30 + centres[gold] * apart + draw.normal(size=(count, LAYERS, WIDTH)) * np.linspace(0.2, 3, WIDTH)
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


def test_rows_without_labels_count_as_labelled_rows_do_if_their_states_leave_no_doubt() -> None:
    """With their labels scikit-learn has the same discriminants, for one of the shrinkages."""
    (states, scores, gold), (new, of_new, _), (more, _, labels) = rows_of(15), rows_of(100, 1), rows_of(60, 5, 4.0)
    head, residuals = discriminants(states, scores, gold, range(15), Unlabelled(more, np.zeros((60, LABELS)))), []
    found, together = head.scores(new, of_new), (np.concatenate([states, more]), [*gold, *labels])
    for peer in (by_peer(*together, new, shrinkage) for shrinkage in SHRINKAGES):
        basis = np.stack([*(each[:, 1] - each[:, 0] for each in (peer, log_softmax(of_new))), np.ones(100)], axis=1)
        residuals.append(np.linalg.lstsq(basis, found[:, 1] - found[:, 0], rcond=None)[1][0])
    assert min(residuals) < 1e-10


def test_rows_without_labels_make_the_head_of_a_few_labels_better() -> None:
    (states, scores, gold), (more, of_more, _), (new, of_new, true) = rows_of(12), rows_of(300, 5), rows_of(600, 1)
    heads = [discriminants(states, scores, gold, range(12), each) for each in (None, Unlabelled(more, of_more))]
    few, many = ((head.scores(new, of_new).argmax(axis=1) == true).mean() for head in heads)
    assert many > few + 0.05


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
    for method in (each for each in CALIBRATIONS.values() if each.of_states):
        fitted = method.fitted(wider, gold, range(30), states)
        assert set(fitted.scores(states, wider).argmax(axis=1)) <= {0, 1, 2}


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
