"""The estimators of a bias, against the formulas of their papers computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from deepthink_cli.calibration import estimates
from deepthink_cli.calibration.registry import CALIBRATIONS, calibrations
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.scoring.softmax import log_softmax

# Probabilities of two labels for three inputs; their means are 0.7 and 0.3.
THREE = [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]]


def corrected(name: str, rows: list[list[float]], basis: list[list[float]]) -> list[list[float]]:
    """Probabilities of rows after a calibration, given those of its inputs."""
    logs = log_softmax(np.log(rows)) - CALIBRATIONS[name].bias(log_softmax(np.log(basis)))
    values: list[list[float]] = np.exp(log_softmax(logs)).tolist()
    return values


@pytest.mark.parametrize("name", ["contextual", "domain", "batch"])
def test_a_mean_bias_divides_by_the_mean_probability_of_each_label(name: str) -> None:
    # q = W p with W = diag(0.7, 0.3)^-1, normalised: 0.6 / 0.7 against 0.4 / 0.3
    first, second = 0.6 / 0.7, 0.4 / 0.3
    ((left, right),) = corrected(name, [[0.6, 0.4]], THREE)
    assert (left, right) == pytest.approx((first / (first + second), second / (first + second)))
    assert right > left
    bias = CALIBRATIONS[name].bias(log_softmax(np.log(THREE)))
    assert bias == pytest.approx([math.log(0.7), math.log(0.3)])


def test_the_mean_is_of_normalised_probabilities() -> None:
    """An input whose labels are all unlikely counts as much as the others."""
    scaled = [[0.9, 0.1], [0.8e-9, 0.2e-9], [0.4, 0.6]]
    assert corrected("contextual", [[0.6, 0.4]], scaled)[0] == pytest.approx(corrected("batch", [[0.6, 0.4]], THREE)[0])


def test_pmi_is_the_ratio_to_the_probability_without_the_input() -> None:
    # log 0.02 - log 0.08 = log 1/4 and log 0.01 - log 0.01 = 0: the probabilities need no normalisation
    ((left, right),) = corrected("pmi", [[0.02, 0.01]], [[0.08, 0.01]])
    assert (left, right) == pytest.approx((0.2, 0.8))


def test_prior_matching_makes_all_labels_equally_likely_on_average() -> None:
    after = np.array(corrected("prior", THREE, THREE))
    assert after.mean(axis=0) == pytest.approx([0.5, 0.5])
    # With two labels the bias is one number d: the mean of 1 / (1 + exp(d - z)) over the log-odds z is 1/2.
    odds = [math.log(left / right) for left, right in THREE]
    low, high = min(odds), max(odds)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(1 / (1 + math.exp(middle - z)) for z in odds) > 1.5 else (low, middle)
    assert after[:, 0] == pytest.approx([1 / (1 + math.exp(low - z)) for z in odds])


@pytest.mark.parametrize("scale", [1, 20, 1000])
@pytest.mark.parametrize("shape", [(50, 4), (7, 4), (200, 30)])
def test_prior_matching_converges_for_confident_predictions(shape: tuple[int, int], scale: float) -> None:
    rows = log_softmax(np.random.default_rng(0).normal(size=shape) * scale)
    after = np.exp(log_softmax(rows - CALIBRATIONS["prior"].bias(rows)))
    assert after.mean(axis=0) == pytest.approx([1 / shape[1]] * shape[1], abs=1e-9)


@pytest.mark.parametrize("constant", [0, 6, -300])
@pytest.mark.parametrize("likely", [30, 100])
@pytest.mark.parametrize("rows", [50, 100, 150])
def test_prior_matching_is_the_root_of_its_equation_where_every_row_is_certain(
    rows: int, likely: float, constant: float
) -> None:
    """With 100 rows of each kind, the mean share is 1/2 to twelve digits wherever d is between the kinds.

    With two labels and log-odds z, the equation is sum_i expit(z_i - d) = m/2. Its root is found with the terms near 1
    replaced by 1 - expit(d - z_i), so that their tails are not lost.
    """
    draw = np.random.default_rng(0)
    odds = np.concatenate([draw.normal(likely, 1, rows), draw.normal(-10, 1, 100)])

    def excess(d: float) -> float:
        above = odds > d
        whole = int(above.sum()) - len(odds) / 2
        return float(whole - expit(d - odds[above]).sum() + expit(odds[~above] - d).sum())

    bias = CALIBRATIONS["prior"].bias(log_softmax(np.stack([odds + constant, np.zeros_like(odds)], axis=1)))
    expected = brentq(excess, odds.min() - 30, odds.max() + 30, xtol=1e-12)
    assert bias[0] - bias[1] - constant == pytest.approx(expected, abs=1e-5)


def test_a_bias_that_is_not_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "STEPS", 2)
    with pytest.raises(DeepThinkError, match="no bias makes the labels equally likely over the 3 inputs: 2 steps"):
        CALIBRATIONS["prior"].bias(log_softmax(np.log(THREE)))
    monkeypatch.setattr(estimates, "FLAT", 0)
    with pytest.raises(DeepThinkError, match="no bias fits the labels of the 3 rows: "):
        CALIBRATIONS["fitted"].bias(log_softmax(np.log(THREE)), [0, 0, 1])


def test_a_factor_on_the_probabilities_changes_the_bias_of_batch_by_its_logarithm() -> None:
    # 2 p + 0.5 q + r stays 1 where p = q / 2, so that these rows need no normalisation.
    rows = np.array([[0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.2, 0.4, 0.4]])
    biased = rows * [2, 0.5, 1]
    assert biased.sum(axis=1) == pytest.approx([1, 1, 1])
    assert np.array(corrected("batch", biased.tolist(), biased.tolist())) == pytest.approx(
        np.array(corrected("batch", rows.tolist(), rows.tolist()))
    )


@pytest.mark.parametrize(("name", "inputs"), [("prior", 5), ("pmi", 1), ("contextual", 1), ("domain", 1)])
def test_a_constant_on_the_scores_of_a_label_is_removed_exactly(name: str, inputs: int) -> None:
    draw = np.random.default_rng(1)
    rows, constant = draw.normal(size=(5, 3)), np.array([3.0, -1.0, 0.5])
    basis = rows if name == "prior" else draw.normal(size=(inputs, 3))

    def after(shift: object) -> object:
        logs = log_softmax(rows + shift) - CALIBRATIONS[name].bias(log_softmax(basis + shift))
        return log_softmax(logs)

    assert after(constant) == pytest.approx(after(np.zeros(3)), abs=1e-10)


def test_a_constant_is_not_removed_exactly_by_a_mean_over_several_texts() -> None:
    """The exact sense is one text: the mean of normalised probabilities is not linear in the scores."""
    draw = np.random.default_rng(1)
    rows, basis, constant = draw.normal(size=(5, 3)), draw.normal(size=(3, 3)), np.array([3.0, -1.0, 0.5])
    before = log_softmax(log_softmax(rows) - CALIBRATIONS["contextual"].bias(log_softmax(basis)))
    biased = log_softmax(rows + constant) - CALIBRATIONS["contextual"].bias(log_softmax(basis + constant))
    assert log_softmax(biased) != pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize("rows", [3, 40, 400])
def test_a_fitted_bias_gives_the_true_labels_more_penalised_probability_than_any_other(rows: int) -> None:
    draw = np.random.default_rng(rows)
    logs, gold = log_softmax(draw.normal(size=(rows, 3)) * 2), draw.integers(2, size=rows)  # no row has the third

    def likelihood(bias: Any) -> float:
        return float(log_softmax(logs - bias)[range(rows), gold].sum() - (bias**2).sum() / 2)

    fitted = CALIBRATIONS["fitted"].bias(logs, gold.tolist())
    assert all(likelihood(fitted) > likelihood(fitted + step) for step in draw.normal(size=(200, 3)) * 0.01)
    assert fitted.sum() == pytest.approx(0)


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


def test_a_bias_fitted_on_many_rows_makes_each_label_as_likely_as_it_is_true() -> None:
    # One input with p = 0.8, whose label is the first in a third of the rows: p(first) / b must have the share 1/3.
    bias = CALIBRATIONS["fitted"].bias(log_softmax(np.log([[0.8, 0.2]] * 30_000)), [0, 1, 1] * 10_000)
    # 0.8 / b against 0.2 b for b(first) = b = 1 / b(second): 4 / b^2 = 1/2, so log b = log(8) / 2
    assert bias == pytest.approx([math.log(8) / 2, -math.log(8) / 2], rel=1e-3)


@pytest.mark.parametrize("name", [name for name, each in CALIBRATIONS.items() if not each.of_states])
def test_everything_is_computed_in_float64(name: str) -> None:
    logs = log_softmax(np.log(np.array([[0.9, 0.1]] * 2, dtype=np.float32)))[: 1 if name == "pmi" else 2]
    assert logs.dtype == np.float64
    assert CALIBRATIONS[name].bias(logs, [0, 1] if CALIBRATIONS[name].labelled else None).dtype == np.float64


def test_a_list_of_names_is_read_in_order() -> None:
    assert calibrations("batch, none,pmi") == ("batch", "none", "pmi")
    assert calibrations(None) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bach", "calibrate bach: use none, contextual, domain, batch, pmi, prior"),
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
        with pytest.raises(InputError, match=f"^calibrate {name}: .*give 20 or more, store the bias of other rows"):
            method.check_count(rows)


def test_a_calibration_that_needs_true_labels_is_named_only_where_it_is_stored() -> None:
    with pytest.raises(InputError, match=r"^calibrate fitted: needs rows with true labels: store it"):
        calibrations("batch,fitted")
