"""By which figures the paper's claims are judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.small_evidence import write_row

from research.evidence.claims import Found, claims
from research.evidence.discrimination import comparisons
from research.evidence.load import read_evidence
from research.evidence.methods import beside_random
from research.table1.page import Model

ROWS = 40


def scores_with(right: int) -> np.ndarray:
    """Scores whose first `right` inputs are labelled as the truth, which alternates, and the others not."""
    true = np.array([[0.0, -1.0], [-1.0, 0.0]] * (ROWS // 2))
    true[right:] = true[right:, ::-1]
    return true


def judged(folder: Path, words: str, table1: Model | None = None) -> Found:
    """What is found for the claim that has these words."""
    evidence = read_evidence(folder)
    compared = {each.name: each for each in (*comparisons(evidence), *beside_random(evidence))}
    (found,) = (each.found for each in claims(evidence, compared, table1) if words in each.words)
    return found


def verdict(folder: Path, words: str) -> str:
    """Whether the claim that has these words holds."""
    return judged(folder, words).holds


def write_curve(folder: Path, rights: dict[int, int], **more: object) -> None:
    """Two seeds with as many right answers at each T."""
    for seed in range(2):
        for t, right in rights.items():
            write_row(folder, scores_with(right), seed=seed, t=t, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("lens", "found"), [(10, "yes"), (30, "no"), (20, "not shown")])
def test_thinking_after_a_choice_is_judged_beside_one_reading_of_lens(lens: int, found: str, tmp_path: Path) -> None:
    write_curve(tmp_path / "choices", {1: 38, 5: 20}, eta=0.01, sampling="random-valid")
    write_curve(tmp_path / "choices", {1: lens, 5: 2}, eta=0.01, sampling="lens")
    assert verdict(tmp_path, "LENS") == found


@pytest.mark.parametrize(
    ("small", "large", "found"),
    [((20, 34, 20), (20, 20, 20), "yes"), ((20, 20, 6), (20, 34, 34), "no"), ((20, 20, 20), (20, 34, 34), "not shown")],
)
def test_readings_are_judged_at_the_papers_eta(
    small: Sequence[int], large: Sequence[int], found: str, tmp_path: Path
) -> None:
    for eta, rights in ((0.01, small), (0.1, large)):
        write_curve(tmp_path / "continued", dict(zip((1, 2, 5), rights, strict=True)), eta=eta)
    assert verdict(tmp_path, "with more readings accuracy rises") == found


@pytest.mark.parametrize(("right", "found"), [(8, "yes"), (36, "no"), (21, "not shown")])
@pytest.mark.parametrize(("name", "worse"), [("graph-cut", "k-center"), ("k-center", "graph-cut")])
def test_thinking_is_judged_beside_both_of_the_papers_choices_whatever_others_give(
    name: str, worse: str, right: int, found: str, tmp_path: Path
) -> None:
    write_curve(tmp_path / "random", {1: 20, 5: 22})
    for sampling, rights in (("global-entropy", 38), (name, right), (worse, 8)):
        write_curve(tmp_path / "choices", {1: rights}, sampling=sampling)
    assert verdict(tmp_path, "than any of the paper's choices") == found


def test_other_rows_and_choices_by_dev_rows_stand_beside_the_figure_that_decides(tmp_path: Path) -> None:
    write_curve(tmp_path / "continued", {1: 20, 5: 22}, eta=0.01)
    write_curve(tmp_path / "random", {1: 20, 5: 24})
    assert "; after others, on rows of [Table 1](table1.md), +10.0 [" in judged(tmp_path, "five readings").figures
    write_curve(tmp_path / "choices", {1: 20, 5: 22}, sampling="random-valid", eta=0.01)
    rights = {"plain": 10, "thinking": 12, "plain batch": 20, "thinking batch": 16}
    lines = [
        {"method": method, "task": "sst2", "seed": seed, **{kind: np.arange(40.0) < n for kind, n in rights.items()}}
        for method in ("random", "random-valid")
        for seed in range(2)
    ]
    answers = pd.DataFrame(lines)
    accuracies = answers.assign(**{kind: answers[kind].map(np.mean) for kind in rights})
    found = judged(tmp_path, "chosen by dev rows", Model("tiny", accuracies, [], [], answers))
    assert "T by 80 dev rows, +5.0 [" in found.figures
    assert "after batch calibration -10.0 [" in found.figures


@pytest.mark.parametrize(("others", "found"), [(20, "yes"), (33, "not shown")])
def test_stem_must_gain_more_than_each_of_the_others(others: int, found: str, tmp_path: Path) -> None:
    after = {"stem": 33, "humanities": 20, "social_sciences": 20, "others": others}
    for category, right in after.items():
        for number in range(4):
            for t, count in ((1, 20), (5, right + number % 2)):
                task, groups = f"mmlu/{category}{number}", ("mmlu", f"mmlu/{category}")
                write_row(tmp_path / "subjects", scores_with(count), task=task, t=t, groups=groups)
    assert verdict(tmp_path, "STEM gains more") == found


@pytest.mark.parametrize(("four", "found"), [(36, "not shown"), (8, "no")])
def test_every_number_of_demonstrations_is_judged_and_how_accuracy_varies(
    four: int, found: str, tmp_path: Path
) -> None:
    write_curve(tmp_path / "own", {1: 20, 5: 36}, eta=0.01)
    write_curve(tmp_path / "shots", {1: 20, 5: four}, eta=0.01, shots=4)
    assert verdict(tmp_path, "with every number of demonstrations") == found  # which never varies less
