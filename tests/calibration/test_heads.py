"""The nearest mean and the head, against transformers over whole prompts in float64 and against scikit-learn."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Models, write_rows
from helpers.said import Captured, json_of
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer

from deepthink_cli import calibrate, load_memory
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.vllm.engine import VllmEngine
from deepthink_cli.prediction.scorer import Scorer
from deepthink_cli.scoring.scoring import Scoring

Array = NDArray[np.float64]
FITTED = [("a warm, clever film", "positive"), ("a kind and lovely play", "positive"), ("good fun", "positive")]
FITTED += [("dull and much too long", "negative"), ("a waste of an evening", "negative")]
INPUTS = [f"{word} {kind} number {n}" for n in range(5) for word in ("warm", "dull") for kind in ("film", "play")]


class ByHand:
    """The hidden states before the label, from a whole prompt in one pass."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder).double().eval()

    def states(self, solved: Sequence[tuple[str, str]], text: str) -> Array:
        """After every layer (L, W), the last after the norm."""
        prompt = "".join(TEMPLATE.format(review=review, sentiment=label) + "\n\n" for review, label in solved)
        ids = torch.tensor([self.tokenizer(prompt + TEMPLATE.format(review=text, sentiment="").rstrip())["input_ids"]])
        with torch.no_grad():
            states = self.model(ids, output_hidden_states=True).hidden_states
        return np.stack([each[0, -1].numpy() for each in states[1:]])

    def state(self, solved: Sequence[tuple[str, str]], text: str) -> Array:
        """After the last layer (W,)."""
        found: Array = self.states(solved, text)[-1]
        return found

    def distances(self, rows: Sequence[tuple[Array, str]], states: Sequence[Array]) -> list[dict[str, float]]:
        """The squared distance of each state from the mean of each label's rows."""
        means = {
            label: np.mean([state for state, other in rows if other == label], axis=0)
            for label in ("positive", "negative")
        }
        return [{label: float(((state - mean) ** 2).sum()) for label, mean in means.items()} for state in states]


@pytest.fixture(scope="module")
def by_hand(models: Models) -> ByHand:
    """The tiny Llama in float64."""
    return ByHand(models("llama"))


@pytest.fixture
def memory(thought_of: Callable[..., Path], tmp_path: Path) -> Path:
    """A memory of the four reviews, T = 1."""
    return thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1")


def write_fitted(path: Path) -> Path:
    """Write labelled rows as JSON Lines."""
    return write_rows(path, [{"review": text, "sentiment": label} for text, label in FITTED])


def corrected(memory: Path, tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    """The stored correction of each input."""
    inputs = write_rows(tmp_path / "inputs.jsonl", [{"review": text} for text in INPUTS])
    assert run(["predict", str(memory), str(inputs), "-q", "-o", str(tmp_path / "out.jsonl"), *words]) == 0
    return [json.loads(line)["calibrated"]["stored"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]


def check(found: list[dict[str, Any]], distances: list[dict[str, float]]) -> None:
    """Each label is the nearest, and the scores differ by the squared distances times one negative number."""
    assert [each["label"] for each in found] == [min(each, key=lambda name: each[name]) for each in distances]
    slopes = [
        (row["scores"]["positive"] - row["scores"]["negative"]) / (each["positive"] - each["negative"])
        for row, each in zip(found, distances, strict=True)
    ]
    assert slopes == pytest.approx([slopes[0]] * len(slopes), rel=1e-3)
    assert slopes[0] < 0


def test_the_label_is_that_of_the_nearest_mean_of_the_rows(memory: Path, by_hand: ByHand, tmp_path: Path) -> None:
    calibrate(memory, write_fitted(tmp_path / "fitted.jsonl"), calibrate="centroid")
    rows = [(by_hand.state(REVIEWS, text), label) for text, label in FITTED]
    check(corrected(memory, tmp_path), by_hand.distances(rows, [by_hand.state(REVIEWS, each) for each in INPUTS]))


def test_without_rows_each_demonstration_is_read_after_the_others(
    memory: Path, by_hand: ByHand, tmp_path: Path
) -> None:
    calibrate(memory, calibrate="centroid")
    rows = [
        (by_hand.state([*REVIEWS[:place], *REVIEWS[place + 1 :]], text), label)
        for place, (text, label) in enumerate(REVIEWS)
    ]
    check(corrected(memory, tmp_path), by_hand.distances(rows, [by_hand.state(REVIEWS, each) for each in INPUTS]))


def test_a_demonstration_that_occurs_twice_is_read_without_both(
    models: Models, by_hand: ByHand, tmp_path: Path
) -> None:
    solved = [*REVIEWS, REVIEWS[0], (REVIEWS[1][0], REVIEWS[2][1])]  # one with its label, one with another
    demonstrations = write_rows(
        tmp_path / "twice.jsonl", [{"review": text, "sentiment": label} for text, label in solved]
    )
    memory = tmp_path / "twice.safetensors"
    words = ["think", str(demonstrations), "-m", str(models("llama")), "-T", "1", "-q", "-o", str(memory)]
    assert run(words) == 0
    calibrate(memory, calibrate="centroid")
    rows = [(by_hand.state([each for each in solved if each[0] != text], text), label) for text, label in solved]
    check(corrected(memory, tmp_path), by_hand.distances(rows, [by_hand.state(solved, each) for each in INPUTS]))


def test_a_label_whose_rows_are_one_input_is_refused_and_the_file_stays(memory: Path, tmp_path: Path) -> None:
    rows = [{"review": text, "sentiment": label} for text, label in (*FITTED[:4], FITTED[3])]
    before = memory.read_bytes()
    with pytest.raises(
        InputError, match=r"few.jsonl: only one input has the label 'negative'; centroid needs 2 of each"
    ):
        calibrate(memory, write_rows(tmp_path / "few.jsonl", rows), calibrate="centroid")
    assert memory.read_bytes() == before


@pytest.mark.parametrize("again", [[], [FITTED[0], FITTED[3]], [(FITTED[0][0], "negative")]])
def test_the_slope_makes_the_labels_of_rows_that_are_left_out_the_likeliest(
    again: list[tuple[str, str]], memory: Path, by_hand: ByHand, tmp_path: Path
) -> None:
    """Also where an input occurs twice, and with two labels: the means leave out all of its rows."""
    fitted = [*FITTED, *again]
    rows_of = [{"review": text, "sentiment": label} for text, label in fitted]
    header = calibrate(memory, write_rows(tmp_path / "fitted.jsonl", rows_of), calibrate="centroid")
    rows = [(by_hand.state(REVIEWS, text), label) for text, label in fitted]
    other = []
    for (text, _), (state, _) in zip(fitted, rows, strict=True):
        rest = [row for row, (each, _) in zip(rows, fitted, strict=True) if each != text]
        other += by_hand.distances(rest, [state])
    left_out = [each[label] for each, (_, label) in zip(other, rows, strict=True)]

    def loss(slope: float) -> float:
        total = np.log(2 * slope * np.mean(left_out)) ** 2 / 2
        for each, (_, label) in zip(other, rows, strict=True):
            weights = {name: np.exp(-slope * value) for name, value in each.items()}
            total -= np.log(weights[label] / sum(weights.values()))
        return float(total)

    head, last = header.metadata.calibrated.head["1"], max(rows[0][0].size, 1)
    between = [np.frombuffer(b64decode(head.weights[name]), "<f4")[-last:] for name in ("positive", "negative")]
    means = [np.mean([s for s, other in rows if other == name], axis=0) for name in ("positive", "negative")]
    slope = np.linalg.norm(between[0] - between[1]) / np.linalg.norm(means[0] - means[1]) / 2
    assert loss(slope) <= min(loss(slope * factor) for factor in (0.5, 0.9, 0.98, 1.02, 1.1, 2))


def test_every_kept_iteration_and_the_first_have_a_head_of_their_own(
    thought_of: Callable[..., Path], tmp_path: Path, capsys: Captured
) -> None:
    memory = thought_of(tmp_path / "mem.safetensors", "llama", "-T", "3", "--keep", "2,3", "--eta", "0.5")
    header = calibrate(memory, write_fitted(tmp_path / "fitted.jsonl"), calibrate="centroid")
    assert set(header.metadata.calibrated.head or {}) == {"1", "2", "3"}
    rows = write_rows(tmp_path / "rows.jsonl", [{"review": text, "sentiment": label} for text, label in FITTED])
    results = json_of(capsys, "eval", memory, rows, "--at", "all", "--json", "-q")["results"]
    assert [list(each["calibrated"]) for each in results] == [["stored"]] * 3


def test_repeated_demonstrations_cannot_be_left_out(thought_of: Callable[..., Path], tmp_path: Path) -> None:
    memory = thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1", "--technique", "repeat-2")
    with pytest.raises(InputError, match=r"cannot be left out one by one; give calibrate centroid a file"):
        calibrate(memory, calibrate="centroid")


def test_an_engine_that_gives_no_hidden_states_refuses_a_head(memory: Path, tmp_path: Path) -> None:
    calibrate(memory, write_fitted(tmp_path / "fitted.jsonl"), calibrate="centroid")

    engine = object.__new__(VllmEngine)  # which is not started
    with pytest.raises(InputError, match="scores by vLLM: gives no hidden states, by which this memory labels"):
        engine.check_memory(load_memory(memory))


def test_an_ensemble_in_which_one_memory_has_a_head_is_scored_without_it(
    memory: Path, thought_of: Callable[..., Path], tmp_path: Path
) -> None:
    other = thought_of(tmp_path / "other.safetensors", "llama", "-T", "2", "--keep", "1")
    inputs = write_rows(tmp_path / "inputs.jsonl", [{"review": text} for text in INPUTS])
    words = ["predict", str(memory), str(inputs), "--ensemble", str(other), "--calibrate", "none", "-q", "-o"]
    assert run([*words, str(tmp_path / "before.jsonl")]) == 0
    calibrate(memory, write_fitted(tmp_path / "fitted.jsonl"), calibrate="centroid")
    assert run([*words, str(tmp_path / "after.jsonl")]) == 0
    before, after = ((tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("before", "after"))
    for plain, observed in zip(map(json.loads, before), map(json.loads, after), strict=True):
        assert observed["scores"] == pytest.approx(plain["scores"], abs=1e-5)


def test_a_memory_with_a_head_scores_by_states_of_its_layers_and_log_probabilities(
    memory: Path, by_hand: ByHand, tmp_path: Path
) -> None:
    """The stored weights times transformers' states, plus the stored share of the log-probabilities."""
    header = calibrate(memory, write_fitted(tmp_path / "fitted.jsonl"), calibrate="head")
    head = header.metadata.calibrated.head["1"]
    inputs = write_rows(tmp_path / "inputs.jsonl", [{"review": text} for text in INPUTS])
    assert run(["predict", str(memory), str(inputs), "-q", "-o", str(tmp_path / "out.jsonl")]) == 0
    for text, line in zip(INPUTS, (tmp_path / "out.jsonl").read_text().splitlines(), strict=True):
        states, row = by_hand.states(REVIEWS, text), json.loads(line)
        expected = {
            label: np.frombuffer(b64decode(weights), "<f4") @ states[[layer - 1 for layer in head.layers]].ravel()
            + head.bias[label]
            + head.of_scores * row["scores"][label]
            for label, weights in head.weights.items()
        }
        found = row["calibrated"]["stored"]["scores"]
        between = [each["positive"] - each["negative"] for each in (found, expected)]
        assert between[0] == pytest.approx(between[1], abs=1e-3)
        assert row["calibrated"]["stored"]["label"] == max(expected, key=lambda name: expected[name])


def test_a_head_names_its_rows_without_labels_which_are_no_labelled_rows(memory: Path, tmp_path: Path) -> None:
    fitted, texts = write_fitted(tmp_path / "fitted.jsonl"), [*INPUTS, INPUTS[0], FITTED[0][0], REVIEWS[0][0]]
    inputs = write_rows(tmp_path / "inputs.jsonl", [{"review": text} for text in texts])
    header = calibrate(memory, fitted, unlabelled=inputs)
    assert "5 rows of fitted.jsonl, and 20 without labels of inputs.jsonl" in str(header.metadata.calibrated)
    own = write_rows(tmp_path / "own.jsonl", [{"review": "so so", "candidates": ["fair", "good"]}])
    for rows, output, name, reason in (
        (inputs, memory, "centroid", "are for calibrate head, not centroid; omit it"),
        (fitted, memory, "head", "give others"),
        (own, memory, "head", "own.jsonl:1: has candidates of its own"),
        (inputs, inputs, "head", "inputs.jsonl: exists, and is not a memory"),
    ):
        with pytest.raises(InputError, match=reason):
            calibrate(memory, fitted, output, calibrate=name, unlabelled=rows)


def test_the_scores_of_another_scoring_are_refused_by_a_head(memory: Path, tmp_path: Path) -> None:
    calibrate(memory, write_fitted(tmp_path / "fitted.jsonl"), calibrate="head")
    with pytest.raises(InputError, match="stores is of score sum; give the same"):
        Scorer.open(memory, scoring=Scoring.of(score="mean"))
