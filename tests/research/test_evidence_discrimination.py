"""Measures of discrimination and of the prior, against a search over constants, scikit-learn and made-up changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.small_evidence import made_up_scores, write_grid, write_row
from sklearn.metrics import roc_auc_score

from research.evidence import discrimination
from research.evidence.discrimination import (
    Compared,
    Pair,
    after_bias,
    areas,
    compare,
    comparisons,
    holm,
    matched_labels,
    pairwise_areas,
)
from research.evidence.findings import of_thinking, points, rising, variations_sentence, without_one_task
from research.evidence.load import Scores, read_evidence
from research.evidence.measures import Floats, Ints, normalised, predicted


def made_up(rows: int, labels: int, skill: float, seed: int = 0) -> Scores:
    """Scores that lean toward the true label by `skill` nats."""
    draw = np.random.default_rng(seed)
    gold = draw.integers(labels, size=rows)
    scores = draw.normal(size=(rows, labels))
    scores[np.arange(rows), gold] += skill
    return Scores(tuple("abcd"[:labels]), normalised(scores), gold)


def shifted(scores: Scores, constants: list[float]) -> Scores:
    """The same scores with a constant for each label."""
    return Scores(scores.labels, normalised(scores.logs + np.array(constants)), scores.gold)


def pairs(before: Scores, after: Scores) -> list[Pair]:
    """Two tasks of two seeds, all alike; the dev rows are the test rows."""
    return [Pair(task, seed, before, after, before, after) for task in ("sst2", "mr") for seed in (0, 1)]


def test_matched_labels_are_those_of_the_constants_that_give_each_label_as_often() -> None:
    scores = made_up(30, 3, 1.0)
    found = []
    for constants in product(np.linspace(-3, 3, 61), repeat=2):
        labels = predicted(scores.logs + np.array([0.0, *constants]))
        if np.bincount(labels, minlength=3).tolist() == [6, 14, 10]:
            found.append(labels.tolist())
    assert found
    assert matched_labels(scores.logs, np.array([6, 14, 10])).tolist() in found


def test_the_area_is_that_of_scikit_learn_with_ties() -> None:
    scores = made_up(60, 3, 0.7)
    rounded = Scores(scores.labels, np.round(scores.logs, 1), scores.gold)
    expected = [roc_auc_score(rounded.gold == label, rounded.logs[:, label]) for label in range(3)]
    assert areas(rounded.logs, rounded.gold, range(3)).mean() == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("area", [areas, pairwise_areas])
def test_the_values_of_the_rows_vary_as_the_area_of_resampled_rows(
    area: Callable[[Floats, Ints, Sequence[int]], Floats],
) -> None:
    scores, draw = made_up(200, 3, 1.0), np.random.default_rng(1)
    samples = [draw.integers(200, size=200) for _ in range(400)]
    resampled = [area(scores.logs[rows], scores.gold[rows], range(3)).mean() for rows in samples]
    values = area(scores.logs, scores.gold, range(3))
    assert values.std() / np.sqrt(200) == pytest.approx(np.std(resampled), rel=0.1)


def test_a_move_of_the_prior_changes_accuracy_alone() -> None:
    before = made_up(200, 2, 1.0)
    after = shifted(before, [2.0, 0.0])
    found = {name: compare(pairs(before, after), name) for name in discrimination.MEASURES}
    assert found["accuracy"].mean < -0.05
    assert found["accuracy"].interval[1] < 0
    for name, tolerance in (("matched", 1e-12), ("AUC", 1e-12), ("fitted", 0.02)):
        assert found[name].mean == pytest.approx(0, abs=tolerance)


def test_better_discrimination_is_seen_by_every_measure() -> None:
    before, after = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    for name in discrimination.MEASURES:
        change = compare(pairs(before, after), name)
        assert change.interval[0] > 0
        assert change.p < 0.05


def test_what_rises_and_falls_is_named_and_what_is_left_after_holms_correction_is_bold() -> None:
    before, after = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    found = [
        Compared("`good`: more skill", False, pairs(before, after)),
        Compared("`bad`: less", False, pairs(after, before)),
    ]
    assert "- *pairs*, of 2 lines: rises in 1 (**`good`**), falls in 1 (**`bad`**)" in rising(found).splitlines()


def test_a_mean_that_one_task_makes_is_said_without_it() -> None:
    same, better = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    only_mr = [replace(pair, after=better if pair.task == "mr" else same) for pair in pairs(same, same)]
    gained = compare([pair for pair in only_mr if pair.task == "mr"], "pairs").mean
    said = without_one_task([Compared("`one`: of a task", False, only_mr)])
    assert f"- *pairs*: `one` {points(gained / 2)}, without MR 0.0" in said
    assert without_one_task([Compared("none", False, pairs(same, same))]) == ""


def test_after_a_bias_dev_rows_choose_the_better_discrimination_and_not_the_fewer_labels() -> None:
    plain, better = made_up(200, 2, 0.5), shifted(made_up(200, 2, 3.0), [5.0, 0.0])
    rows = pd.DataFrame({"part": ["dev", "dev", "test"], "scores": [plain, better, better]})
    rows["accuracy"] = [float((predicted(each.logs) == each.gold).mean()) for each in rows["scores"]]
    found = after_bias(rows)["accuracy"]
    assert rows["accuracy"][0] > rows["accuracy"][1]
    assert found[0] < found[1]
    assert found[2] == rows["accuracy"][2]


def test_without_dev_rows_no_bias_is_fitted() -> None:
    scores = made_up(60, 2, 1.0)
    found = Compared("one", False, [Pair("sst2", 0, scores, scores, None, None)])
    assert set(discrimination.MEASURES) - set(found.differences) == {"fitted"}


def test_holm_multiplies_the_smallest_p_by_the_number_of_tests() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_comparisons_pair_the_same_task_seed_and_rows(tmp_path: Path) -> None:
    for positions in ("continued", "restarted"):
        write_grid(tmp_path / positions, positions, range(2))
    found = {each.name: each for each in comparisons(read_evidence(tmp_path))}
    assert "the paper's setting, T = 5" in found
    paired = found["the paper's setting, T = 5"].pairs
    assert [(pair.task, pair.seed) for pair in paired] == [("sst2", 0), ("sst2", 1), ("mr", 0), ("mr", 1)]
    assert all((pair.before.gold == pair.after.gold).all() for pair in paired)
    assert found["the paper's setting, T by dev rows"].labels == 20


def test_copies_of_the_demonstrations_are_compared_with_one_reading_of_them(tmp_path: Path) -> None:
    write_grid(tmp_path / "continued", "continued", [0])
    write_row(tmp_path / "repeated", made_up_scores(40, "twice", bias=0.0), eta=0.0, shots=16)
    found = {each.name: each for each in comparisons(read_evidence(tmp_path))}
    twice = found["2 copies of the demonstrations, T = 1"]
    assert [(pair.task, pair.seed) for pair in twice.pairs] == [("sst2", 0)]
    assert (twice.labels, twice.cells) == (0, [("sst2", 0)])
    assert "fitted" not in twice.differences
    assert "5 copies of the demonstrations, T = 1" not in found


def test_areas_between_two_labels_are_those_of_scikit_learn_and_no_constants_change_them() -> None:
    scores = made_up(120, 3, 1.0)
    expected = []
    for one, other in ((0, 1), (0, 2), (1, 2)):
        rows = np.isin(scores.gold, (one, other))
        between = scores.logs[rows, one] - scores.logs[rows, other]
        expected.append(roc_auc_score(scores.gold[rows] == one, between))
    moved = shifted(scores, [2.0, -1.0, 0.5])
    assert pairwise_areas(scores.logs, scores.gold, range(3)).mean() == pytest.approx(np.mean(expected))
    assert pairwise_areas(moved.logs, moved.gold, range(3)).mean() == pytest.approx(np.mean(expected))
    first, last = (areas(each.logs, each.gold, range(3)).mean() for each in (scores, moved))
    assert first != pytest.approx(last)


@pytest.mark.parametrize("order", [1, -1])
def test_areas_leave_out_labels_that_one_side_does_not_score(order: int) -> None:
    whole, other = made_up(120, 3, 1.0), made_up(120, 3, 2.0)
    logs = other.logs.copy()
    logs[:, 2] = -np.inf
    before, after = (whole, replace(other, logs=logs))[::order]
    pairs = [Pair("a", seed, before, after, None, None) for seed in (0, 1)]
    between, rest = (compare(pairs, name) for name in ("pairs", "AUC"))
    rows, names = np.isin(whole.gold, (0, 1)), ("before", "after")[::order]
    for name, scores in zip(names, (whole, other), strict=True):
        steps = scores.logs[rows, 0] - scores.logs[rows, 1]
        assert getattr(between, name) == pytest.approx(roc_auc_score(whole.gold[rows] == 0, steps))
    expected = [roc_auc_score(whole.gold == label, whole.logs[:, label]) for label in (0, 1)]
    assert getattr(rest, names[0]) == pytest.approx(np.mean(expected))


def test_there_are_no_areas_if_one_seed_has_a_single_label_that_both_sides_score() -> None:
    whole = made_up(120, 3, 1.0)
    single = replace(whole, logs=np.where([[True, False, False]], whole.logs, -np.inf))
    pairs = [Pair("a", seed, whole, after, None, None) for seed, after in enumerate((whole, single))]
    assert Compared("", False, pairs).differences.keys() == {"accuracy", "matched"}


def test_one_seed_of_each_task_shows_nothing() -> None:
    before, after = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    change = compare([Pair("sst2", 0, before, after, None, None)], "accuracy")
    assert (change.p, change.interval) == (1.0, (-np.inf, np.inf))


def test_holms_correction_over_the_lines_of_thinking_leaves_out_all_others() -> None:
    same, better = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    other = Compared("not thinking", False, pairs(same, better))
    thought = Compared("several readings: more skill", False, pairs(same, better), thinks=True)
    entries = len(thought.differences)
    said = of_thinking([other, thought])
    assert said.startswith(
        f"After Holm's correction over the {entries} entries of the 1 line of thinking alone is left:"
    )
    assert f"several readings (*accuracy* {points(thought.differences['accuracy'].mean)}" in said
    assert "not thinking" not in said
    assert of_thinking([replace(thought, pairs=pairs(same, same))]).endswith("is left: nothing.")


def test_variations_that_tell_labels_apart_better_are_counted_before_and_after_a_correction() -> None:
    same, better = made_up(200, 2, 0.5), made_up(200, 2, 3.0)
    found = [Compared("one", False, pairs(same, better)), Compared("other", False, pairs(same, same))]
    said = variations_sentence(found)
    assert said.startswith("Of 2 [variations of this setting]")
    assert said.endswith(
        "1 raise that area by their own intervals, and 1 after a correction for the number of comparisons."
    )
