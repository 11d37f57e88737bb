"""Significance agrees with textbook values and with scipy's own tests."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from helpers.said import Captured, output
from helpers.synthetic import curve, write
from scipy.stats import f as f_distribution
from scipy.stats import friedmanchisquare

from deepthink_cli.report.ranking import Ranking, rank
from deepthink_cli.report.significance import Discordant, Spread, differences, discordant, t_interval, wilcoxon_p


def test_the_standard_deviation_is_the_samples() -> None:
    assert Spread.of([2, 4, 4, 4, 5, 5, 7, 9]) == Spread(5.0, pytest.approx(math.sqrt(32 / 7)), 8)
    assert Spread.of([0.3]) == Spread(0.3, None, 1)


def test_the_interval_is_students() -> None:
    # Mean 3, sd sqrt(2.5), t(4 degrees of freedom, 97.5 %) = 2.776445.
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert t_interval([1, 2, 3, 4, 5]) == pytest.approx((3 - half, 3 + half), abs=1e-5)
    assert t_interval([0.1]) is None


@pytest.mark.parametrize("values", [[0.5, 0.5], [-0.03, -0.03], [0.0] * 10])
def test_equal_values_have_no_interval(values: list[float]) -> None:
    assert t_interval(values) is None


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([1, 2, 3, 4, 5], 0.0625),
        ([-1, -2, -3, -4, -5], 0.0625),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 2 / 1024),
        ([-1, 2, 3], 0.5),
        ([2, 2], 0.5),
        ([0, 0, 3], 1.0),
        ([0, 0, 0], 1.0),
    ],
)
def test_signed_ranks_worked_out_by_hand(values: list[float], p: float) -> None:
    assert wilcoxon_p(values) == pytest.approx(p)


def test_one_pair_says_nothing() -> None:
    assert wilcoxon_p([0.1]) is None


# Darwin's cross- and self-fertilised maize, in eighths of an inch, as in Fisher (1935), section 17.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


@pytest.mark.parametrize("values", [MAIZE[:12], [3, -3, 3, 1, 1, 0, 0, 2], [5, 5, 5, -5, 0, 1, 1, -2, 2, 2]])
def test_signed_ranks_agree_with_scipy_over_all_signs(values: list[float]) -> None:
    from scipy.stats import PermutationMethod, wilcoxon

    kept = [value for value in values if value]
    exact = wilcoxon(kept, method=PermutationMethod(n_resamples=2 ** len(kept)))
    assert wilcoxon_p(values) == pytest.approx(float(exact.pvalue))


def test_equal_steps_are_ties_whatever_their_binary_fractions() -> None:
    assert 0.3 - 0.2 != 0.2 - 0.1
    steps = differences([0.2, 0.1], [0.3, 0.2])
    assert steps[0] == steps[1] == 0.1
    with pytest.raises(ValueError, match="zip"):
        differences([0.1], [0.1, 0.2])


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(10, 2, 0.03857), (2, 10, 0.03857), (0, 0, 1), (3, 3, 1), (5, 0, 0.0625)]
)
def test_mcnemar_is_the_binomial_test_of_the_discordant(gained: int, lost: int, p: float) -> None:
    assert Discordant(gained, lost).p == pytest.approx(p, abs=1e-5)


def test_only_changed_answers_are_discordant() -> None:
    assert discordant([True, True, False, False, False], [True, False, True, True, False]) == Discordant(2, 1)
    with pytest.raises(ValueError, match="zip"):
        discordant([True], [True, False])


DRAWN = (np.random.default_rng(0).normal(size=(12, 5)) + np.array([0.8, 0, 0, 0.3, 0])).round(1)  # with ties


def ranked(table: np.ndarray = DRAWN) -> Ranking:
    ranking = rank({f"method {n}": list(column) for n, column in enumerate(table.T)})
    assert isinstance(ranking, Ranking)
    return ranking


def test_p_is_friedmans_in_the_form_of_iman_and_davenport() -> None:
    blocks, methods = DRAWN.shape
    chi2 = friedmanchisquare(*DRAWN.T).statistic
    f = (blocks - 1) * chi2 / (blocks * (methods - 1) - chi2)
    assert ranked().p == pytest.approx(f_distribution.sf(f, methods - 1, (methods - 1) * (blocks - 1)))


def test_the_critical_difference_is_that_of_demsars_table() -> None:
    """Demsar 2006, table 5(a): q = 2.343, 2.569, 2.728 for 3, 4, 5 methods at 5 %."""
    for methods, q in ((3, 2.343), (4, 2.569), (5, 2.728)):
        difference = ranked(DRAWN[:, :methods]).critical_difference
        assert difference == pytest.approx(q * math.sqrt(methods * (methods + 1) / (6 * 12)), rel=1e-3)


def test_equal_accuracies_share_their_mean_rank_and_the_best_comes_first() -> None:
    ranking = ranked(np.array([[0.5, 0.5, 0.9]] * 6))
    assert dict(ranking.ranks) == {"method 2": 1.0, "method 0": 2.5, "method 1": 2.5}
    assert list(ranking.ranks) == ["method 2", "method 0", "method 1"]
    assert ranking.means["method 2"] == pytest.approx(0.9)
    assert ranking.p == 0.0


def test_methods_that_are_always_equal_do_not_differ() -> None:
    assert ranked(np.full((6, 3), 0.5)).p == 1.0


def test_groups_are_the_largest_sets_of_neighbours_that_do_not_differ() -> None:
    ranking = Ranking({"a": 1.0, "b": 1.8, "c": 2.6, "d": 4.6}, dict.fromkeys("abcd", 0.5), 10, 0.01, 1.0)
    assert ranking.groups == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize("shape", [(4, 5), (12, 2), (0, 0)])
def test_too_few_are_not_ranked(shape: tuple[int, int]) -> None:
    reason = rank({str(n): list(column) for n, column in enumerate(np.zeros(shape).T)})
    assert isinstance(reason, str)
    assert reason.startswith("too few to rank: ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two seeds on three tasks: two ways of choosing demonstrations, raw and corrected."""
    rows = [
        row
        for task in ("sst2", "mr", "trec")
        for seed in (0, 1)
        for sampling, best in (("random", 60), ("herding", 70))
        for calibration, gain in ((None, 0), ("batch", 5))
        for row in curve(
            [best + gain, best + gain + 2],
            {"drift": None},
            task=task,
            seed=seed,
            sampling=sampling,
            pool_size=100,
            balanced=False,
            calibration=calibration,
            demonstrations_sha256=f"{sampling}{seed}",
        )
    ]
    return write(tmp_path / "run", rows)


def test_a_report_ranks_every_arm_at_both_t(folder: Path, capsys: Captured) -> None:
    out = output(capsys, "report", folder, "--details")
    lines = [" ".join(line.split()) for line in out[out.index("Methods by mean rank") :].splitlines()]
    assert "herding sampling, batch calibration, T 1.00 77.0 a" in lines
    (last,) = (line for line in lines if line.startswith("random sampling, raw scores, T = 1 8.00 60.0 "))
    assert not last.endswith("a")
    assert "p < 0.001" in " ".join(lines)


def test_a_report_of_too_few_says_so(tmp_path: Path, capsys: Captured) -> None:
    arms = [curve([50, 60], sampling=name, demonstrations_sha256=name, pool_size=9, balanced=False) for name in "ab"]
    few = write(tmp_path / "few", [row for arm in arms for row in arm])
    out = " ".join(output(capsys, "report", few, "--details").split())
    assert "Ranking of the methods: too few to rank: 4 methods on 1 pairs" in out
