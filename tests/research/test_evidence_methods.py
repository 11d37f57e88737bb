"""Methods on more rows beside random demonstrations: which rows are compared, and what docs/table1.md gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.small_evidence import made_up_scores, write_row

from research.evidence.load import Evidence, read_evidence
from research.evidence.methods import accuracies, beside_random, gains
from research.table1.page import Model, page

RANDOM, CHOSEN, TRAINED, ENSEMBLE, FIVE, AFTER = (
    made_up_scores(40, name, bias=1.0) for name in ("random", "chosen", "trained", "ensemble", "five", "after")
)


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    """One task and seed: random demonstrations at T = 1 and 5, a choice, a technique, and a grid of other scores."""
    write_row(tmp_path / "continued", made_up_scores(40, "grid", bias=0.0))
    write_row(tmp_path / "random", RANDOM)
    write_row(tmp_path / "random", FIVE, t=5)
    write_row(tmp_path / "choices", CHOSEN, sampling="random-valid")
    write_row(tmp_path / "choices", AFTER, sampling="random-valid", t=5)
    write_row(tmp_path / "techniques", TRAINED, technique="ct-kv steps=200")
    write_row(tmp_path / "techniques", ENSEMBLE, technique="ensemble-4")
    return read_evidence(tmp_path)


@pytest.mark.parametrize(
    ("name", "labels", "before", "after"),
    [
        ("thinking, the paper's setting, T = 5, on the rows of Table 1", 0, RANDOM, FIVE),
        ("thinking after `random-valid` demonstrations (the paper's setting, T = 5)", 448, CHOSEN, AFTER),
        ("`random-valid` demonstrations", 448, RANDOM, CHOSEN),
        ("`ct-kv`: the memory is trained by gradients", 0, RANDOM, TRAINED),
        ("`ensemble-4`: four orders, mean log p", 0, RANDOM, ENSEMBLE),
    ],
)
def test_a_method_is_compared_with_random_demonstrations_from_the_same_pool(
    evidence, name, labels, before, after
) -> None:
    found = {each.name: each for each in beside_random(evidence)}
    assert len(found) == 6  # one of them is batch calibration
    (pair,) = found[name].pairs
    assert found[name].labels == labels
    assert (pair.before.logs.argmax(axis=1) == before.argmax(axis=1)).all()
    assert (pair.after.logs.argmax(axis=1) == after.argmax(axis=1)).all()


def test_biases_are_fitted_on_dev_rows_that_may_differ_and_test_rows_may_not(tmp_path: Path) -> None:
    for folder, sampling in (("random", "random"), ("choices", "k-center")):
        write_row(tmp_path / folder, RANDOM, sampling=sampling)
        write_row(tmp_path / folder, made_up_scores(20, folder, bias=1.0), part="dev", sampling=sampling, rows=folder)
        write_row(tmp_path / folder, CHOSEN, sampling=sampling, seed=1, rows=folder)
    compared = {each.name: each for each in beside_random(read_evidence(tmp_path))}
    found = compared["`k-center` demonstrations"]
    assert found.cells == [("sst2", 0)]
    assert "fitted" in found.differences


def test_the_page_of_table_1_has_the_accuracies_of_these_rows(evidence: Evidence, tmp_path: Path) -> None:
    found = accuracies(evidence)
    assert list(found["method"]) == ["random", "random-valid", "thinking", "ct-kv", "ensemble-4"]
    assert found.set_index("method")["plain"]["ct-kv"] == (TRAINED.argmax(axis=1) == [0, 1] * 20).mean()
    costs = [
        {"method": "random", "observed": 0, "sets": 0, "scored": 0, "process_seconds": 7.5},
        {"method": "random-valid", "observed": 0, "sets": 30, "scored": 3000, "process_seconds": 80.0},
    ]
    text = page(
        [
            Model(
                "model",
                found.iloc[:0].assign(**{"thinking": [], "thinking batch": []}),
                costs,
                [],
                more=found,
                more_gains=gains(evidence),
            )
        ],
        tmp_path,
    )
    assert "### 5 methods on 300 rows, 1 seed\n" in text
    accuracy = f"{100 * (CHOSEN.argmax(axis=1) == [0, 1] * 20).mean():.1f}"
    assert f"| random-valid | up to 448 | 3,030 | 72 | {accuracy} | {accuracy} |" in text
    assert (tmp_path / "model-more.png").exists()


def test_a_slow_choice_is_compared_and_leaves_the_table_of_300_rows_its_seeds(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_row(tmp_path / "random", RANDOM, seed=seed)
        write_row(tmp_path / "choices", CHOSEN, sampling="k-center", seed=seed)
    write_row(tmp_path / "choices", AFTER, sampling="lens")
    evidence = read_evidence(tmp_path)
    found = {each.name: each for each in beside_random(evidence)}
    assert {name: (each.labels, each.cells) for name, each in found.items()} == {
        "`k-center` demonstrations": (0, [("sst2", 0), ("sst2", 1)]),
        "`lens` demonstrations": (1000, [("sst2", 0)]),
        "batch calibration (no labels)": (0, [("sst2", 0), ("sst2", 1)]),
    }
    table = accuracies(evidence)
    assert list(zip(table["method"], table["seed"], strict=True)) == [
        *(("random", 0), ("random", 1)),
        *(("k-center", 0), ("k-center", 1)),
    ]
