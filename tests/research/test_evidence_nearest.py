"""The nearest mean hidden state beside one reading: its files, and what is compared."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Models
from helpers.small_evidence import LABELS, made_up_scores, write_row
from helpers.task_rows import write_task_rows

from deepthink_cli.cli.main import run
from research.evidence import nearest
from research.evidence.discrimination import Compared
from research.evidence.load import DIGEST, nearest_path, read_evidence
from research.evidence.methods import beside_random

TRUE = [place % 2 for place in range(40)]


def nearest_beside_random(folder: Path, scores: np.ndarray, demonstrations: str = "0") -> list[Compared]:
    """What is compared if the rows of one reading, of test and dev rows, are beside these scores of test rows."""
    write_row(folder / "random", made_up_scores(40, "random", bias=1.0))
    write_row(folder / "random", made_up_scores(20, "random dev", bias=1.0), part="dev")
    path = nearest_path(folder, "sst2", 0)
    path.parent.mkdir()
    columns = {DIGEST: [demonstrations] * 40, "gold": [LABELS[place] for place in TRUE]}
    pq.write_table(pa.table({**columns, "candidates": [[*LABELS]] * 40, "scores": scores.tolist()}), path)
    return [each for each in beside_random(read_evidence(folder)) if each.name.startswith("nearest mean")]


def test_its_labels_are_compared_with_those_of_a_bias_fitted_on_as_many_labels(tmp_path: Path) -> None:
    scores = made_up_scores(40, "nearest", bias=0.0)
    (found,) = nearest_beside_random(tmp_path, scores)
    right = float((scores.argmax(axis=1) == TRUE).mean())
    assert found.labels == 20
    assert found.differences["accuracy"].after == found.differences["fitted"].after == right
    assert found.differences["fitted"].before != found.differences["accuracy"].before


def test_with_one_label_scored_no_labels_can_be_told_apart(tmp_path: Path) -> None:
    scores = made_up_scores(40, "nearest", bias=0.0)
    scores[:, 1] = -np.inf
    (found,) = nearest_beside_random(tmp_path, scores)
    assert found.differences.keys() == {"accuracy", "matched", "fitted"}


def test_after_other_demonstrations_nothing_is_compared(tmp_path: Path) -> None:
    assert not nearest_beside_random(tmp_path, made_up_scores(40, "nearest", bias=0.0), "others")


def test_demonstrations_and_rows_are_those_of_a_run_and_files_are_made_once(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"MORE_ROWS": "24", "DEV_ROWS": "20"}
    for name, size in sizes.items():
        monkeypatch.setattr(nearest, name, size)
    common = ["--model", str(models("llama")), "--data-dir", str(write_task_rows(tmp_path / "data", ["sst2"]))]
    out = tmp_path / "out"
    asked = ["nearest", *common, "--tasks", "sst2", "--seeds", "0", "-o", str(out)]
    monkeypatch.setattr(sys, "argv", asked)
    nearest.main()
    file = nearest_path(out, "sst2", 0)
    made = file.stat().st_mtime_ns
    nearest.main()
    assert file.stat().st_mtime_ns == made
    assert (out / "nearest.parquet").exists()
    words = ["run", *common, "--task", "sst2", "--seeds", "0,", "--limit", "24", "--choose-on", "dev:20"]
    words += ["--demos-by", "random", "-T", "1", "--dtype", "float32"]
    assert run([*words, "--samples", "--quiet", "-o", str(out / "random")]) == 0
    assert any(each.name.startswith("nearest mean") for each in beside_random(read_evidence(out)))
