"""Techniques and the nearest mean beside one reading, by the samples that research/techniques.py keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.small_evidence import made_up_scores, write_arm

from deepthink_cli.calibration.registry import CALIBRATIONS
from research.evidence.arms import beside_once
from research.evidence.discrimination import Compared
from research.evidence.load import read_evidence

TRUE = [place % 2 for place in range(40)]


def compared(folder: Path) -> list[Compared]:
    return list(beside_once(read_evidence(folder)))


def test_a_technique_is_compared_with_one_reading_of_the_same_task_and_seed(tmp_path: Path) -> None:
    scores = {name: made_up_scores(40, name, bias=1.0) for name in ("once", "trained", "other seed")}
    write_arm(tmp_path, "deep-thinking T=1", scores["once"])
    write_arm(tmp_path, "ct-kv T=1", scores["trained"])
    write_arm(tmp_path, "ct-kv T=1", scores["other seed"], seed=1)
    (found,) = compared(tmp_path)
    assert (found.name, found.cells, found.labels) == ("`ct-kv`: the memory is trained by gradients", [("sst2", 0)], 0)
    before, after = (float((scores[name].argmax(axis=1) == TRUE).mean()) for name in ("once", "trained"))
    accuracy = found.differences["accuracy"]
    assert (accuracy.before, accuracy.after) == (pytest.approx(before), pytest.approx(after))
    fitted = found.differences["fitted"]
    biased = [
        CALIBRATIONS["fitted"].corrected(each, each[:20], TRUE[:20]) for each in (scores["once"], scores["trained"])
    ]
    assert [fitted.before, fitted.after] == [pytest.approx(np.mean(each.argmax(axis=1) == TRUE)) for each in biased]


def test_the_nearest_mean_is_compared_with_a_bias_of_the_same_labels(tmp_path: Path) -> None:
    once, nearest = (made_up_scores(40, name, bias=bias) for name, bias in (("once", 2.0), ("nearest", 0.0)))
    write_arm(tmp_path, "deep-thinking T=1", once)
    write_arm(tmp_path, "centroid T=1", nearest, dev=False)
    (found,) = compared(tmp_path)
    assert found.labels == 20
    right = float((nearest.argmax(axis=1) == TRUE).mean())
    assert found.differences["fitted"].after == found.differences["accuracy"].after == pytest.approx(right)
    assert found.differences["fitted"].before != found.differences["accuracy"].before


def test_without_samples_nothing_is_compared(tmp_path: Path) -> None:
    assert not compared(tmp_path)
