"""Labels of which few are wrong: the bound holds, and the labels that are unsure stay empty."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import write_rows
from helpers.said import Captured, json_of, refused
from numpy.typing import NDArray

from deepthink_cli import calibrate
from deepthink_cli.calibration.bounded import bound, fewest, held_out
from deepthink_cli.calibration.registry import CALIBRATIONS
from deepthink_cli.cli.main import run
from deepthink_cli.corrections import HeldOut

DRAWS, ROWS, FRESH = 1_000, 200, 20_000
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "reviews"


@pytest.mark.parametrize(("most", "rows"), [(0.01, 299), (0.05, 59), (0.1, 29), (0.5, 5)])
def test_so_many_labels_without_an_error_show_a_bound_with_95_percent_confidence(most: float, rows: int) -> None:
    """The rule of three, exactly."""
    assert fewest(most) == rows
    assert (1 - most) ** rows <= 0.05 < (1 - most) ** (rows - 1)
    assert bound(HeldOut((0.9,) * rows, ()), most) is not None
    assert bound(HeldOut((0.9,) * (rows - 1), ()), most) is None


@pytest.mark.parametrize("most", [0.05, 0.06, 0.1, 0.2, 0.5])
def test_rows_without_an_error_are_all_labelled_whatever_the_bound(most: float) -> None:
    found = bound(HeldOut(tuple(np.linspace(1, 0.5, 60)), ()), most)
    assert found is not None
    assert (found.given, found.threshold) == (60, 0.5)


def rows_of(
    draw: np.random.Generator, count: int, worst: float, sharpness: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Probabilities of labels, and whether the labels are right: `worst` is the share of wrong ones at 0.5."""
    probability = draw.uniform(0.5, 1, count)
    return probability, draw.random(count) >= worst * (2 - 2 * probability) ** sharpness


@pytest.mark.parametrize(
    ("most", "worst", "sharpness"), [(0.05, 0.3, 2.0), (0.1, 0.4, 1.5), (0.1, 0.11, 0.0), (0.2, 0.6, 1.0)]
)
def test_the_bound_is_broken_in_at_most_5_percent_of_draws(most: float, worst: float, sharpness: float) -> None:
    """Also where labels of every probability are wrong a little more often than the bound."""
    draw = np.random.default_rng(0)
    fresh, fresh_right = rows_of(draw, FRESH, worst, sharpness)
    broken = found = 0
    for _ in range(DRAWS):
        probability, right = rows_of(draw, ROWS, worst, sharpness)
        held_out = HeldOut(tuple(probability[right].tolist()), tuple(probability[~right].tolist()))
        if (chosen := bound(held_out, most)) is not None:
            given = fresh >= chosen.threshold
            found, broken = found + 1, broken + bool((~fresh_right[given]).mean() > most)
    assert broken <= DRAWS * 0.05
    assert sharpness == 0 or found > DRAWS / 3


def test_copies_of_an_input_count_once() -> None:
    """Twenty copies of each of five inputs prove no more than five inputs."""
    logs = np.log(np.tile([[0.9, 0.1]] * 3 + [[0.2, 0.8]] * 2, (20, 1)))
    found = held_out(CALIBRATIONS["fitted"], logs, [0, 0, 0, 1, 1] * 20, [*range(5)] * 20)
    assert len(found.right) + len(found.wrong) == 5


@pytest.fixture(scope="module")
def corrected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of the built-in model with a head, and labelled rows that it finds easy."""
    folder = tmp_path_factory.mktemp("bounded")
    memory = folder / "mem.safetensors"
    assert run(["think", str(EXAMPLES / "demos.jsonl"), "-T", "1", "-q", "-o", str(memory)]) == 0
    rows = [{"review": f"a {word} film {n}", "sentiment": label} for n in range(40) for word, label in WORDS]
    calibrate(memory, write_rows(folder / "rows.jsonl", rows), calibrate="head")
    return memory


WORDS = [("wonderful and moving", "positive"), ("dull and boring", "negative")]


def test_an_unsure_label_is_empty_and_its_guess_stands_beside_it(corrected: Path, tmp_path: Path) -> None:
    words = ["predict", str(corrected), str(EXAMPLES / "sentences.jsonl"), "-q"]
    assert run([*words, "--max-error", "0.1", "-o", str(tmp_path / "some.csv")]) == 0
    assert run([*words, "-o", str(tmp_path / "all.csv")]) == 0
    some, every = (list(csv.DictReader((tmp_path / f"{name}.csv").open())) for name in ("some", "all"))
    assert [row["guess"] for row in some] == [row["label"] for row in every]
    given = [float(row["probability"]) for row in some if row["label"]]
    empty = [float(row["probability"]) for row in some if not row["label"]]
    assert given
    assert empty
    assert max(empty) < min(given)
    assert {row["confidence"] for row in some} == {"fitted to labelled rows"}


def test_eval_says_how_many_rows_get_a_label_and_how_many_of_these_are_wrong(
    corrected: Path, tmp_path: Path, capsys: Captured
) -> None:
    labelled = EXAMPLES / "labelled.jsonl"
    found = json_of(capsys, "eval", corrected, labelled, "--json", "-q")["coverage"]
    shown = {each["max_error"]: each for each in found}
    out = tmp_path / "labels.jsonl"
    assert run(["predict", str(corrected), str(labelled), "--max-error", "0.1", "-q", "-o", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    given = [row for row in rows if row["label"] is not None]
    assert shown[0.1]["labelled"] == len(given)
    assert shown[0.1]["wrong"] == sum(row["label"] != row["input"]["sentiment"] for row in given)


def test_eval_says_how_many_of_the_most_probable_labels_are_wrong_without_any_bound(
    tmp_path: Path, capsys: Captured
) -> None:
    memory, scored = tmp_path / "mem.safetensors", tmp_path / "scored.jsonl"
    assert run(["think", str(EXAMPLES / "demos.jsonl"), "-T", "2", "--keep", "all", "-q", "-o", str(memory)]) == 0
    words = ["eval", memory, EXAMPLES / "labelled.jsonl", "--json", "-q", "-o", scored]
    found = json_of(capsys, *words)
    rows = [row for row in map(json.loads, scored.read_text().splitlines()) if row["iteration"] == 2]
    assert "coverage" not in found
    assert [each["coverage"] for each in found["error_by_coverage"]] == pytest.approx(
        [0.25, 0.5, 0.75, 0.9, 1], abs=0.05
    )
    for each in found["error_by_coverage"]:
        given = [row for row in rows if row["probability"] >= each["threshold"]]
        assert each["labelled"] == len(given) == round(each["coverage"] * len(rows))
        assert each["wrong"] == sum(row["label"] != row["gold"] for row in given)
    assert found["error_by_coverage"][-1]["wrong"] == round((1 - found["judged"]["value"]) * len(rows)) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--max-error", "0.01"],
            "needs 299 labelled inputs, and .* has 80; store more with deepthink calibrate .* head",
        ),
        (["--max-error", "0.1", "--threshold", "0.5"], "finds the threshold itself; omit --threshold"),
        (["--max-error", "0.1", "--calibrate", "none"], "is of the correction that .* stores; omit --calibrate"),
        (["--max-error", "0.9"], "a share from 0.001 to 0.5"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused_before_anything_is_written(
    words: list[str], message: str, corrected: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out.csv"
    said = refused(capsys, "predict", corrected, EXAMPLES / "inputs.jsonl", *words, "-o", out)
    assert not out.exists()
    assert re.search(message, said)
