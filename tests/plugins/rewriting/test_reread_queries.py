"""Queries that are written several times before their candidates (`--reread`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import deepthink_cli
from deepthink_cli import DemonstrationSet, Example, Method, Scorer, Scoring, load_model, predict, save_memory, think
from deepthink_cli import tokenize_demonstrations as tokenize
from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.calibrate_memory import calibrate
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

PATTERN = "Review: {text}\nSentiment: {label}"
GIVEN = DemonstrationSet.of(
    [Example("A warm and funny film.", "positive"), Example("A dull and lifeless comedy.", "negative")], PATTERN
)
TEXT = "An endless parade of jokes."


@pytest.fixture(scope="module")
def memory_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    engine = load_model("pocket", device="cpu")
    *_, memory = think(engine, tokenize(engine.tokenizer, GIVEN), Method(1))
    path = tmp_path_factory.mktemp("reread") / "m.safetensors"
    save_memory(memory, path)
    return path


def test_the_text_is_written_again_before_what_introduces_the_label() -> None:
    template = Template("{premise} Question: {hypothesis}? Answer: {label}")
    fields = {"premise": "It rains.", "hypothesis": "is it wet"}
    once = "It rains. Question: is it wet"
    assert template.query(fields) == once + "? Answer: "
    assert template.query(fields, Scoring.of(reread=3).written) == f"{once}\n{once}\n{once}? Answer: "


@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_only_the_candidates_are_scored_as_by_the_network_in_float64(memory_file: Path, engine: str) -> None:
    pocket = Path(deepthink_cli.__file__).parent / "pocket"
    tokenizer, network = AutoTokenizer.from_pretrained(pocket), AutoModelForCausalLM.from_pretrained(pocket).double()
    shown = "Review: A warm and funny film.\nSentiment: positive\n\nReview: A dull and lifeless comedy.\n"
    asked = f"{shown}Sentiment: negative\n\nReview: {TEXT}\nReview: {TEXT}\nSentiment:"
    start, expected = tokenizer(asked)["input_ids"], {}
    for label in ("positive", "negative"):
        ids = tokenizer(f"{asked} {label}")["input_ids"]
        assert ids[: len(start)] == start
        with torch.no_grad():
            logs = network(torch.tensor([ids])).logits[0].log_softmax(-1)
        places = range(len(start), len(ids))
        expected[label] = sum(float(logs[place - 1, ids[place]]) for place in places)
    memory = open_memory(memory_file).memories()
    (found,) = predict(load_model("pocket", device="cpu", engine=engine), memory, [TEXT], scoring=Scoring.of(reread=2))
    assert found.scores == pytest.approx(expected, abs=1e-4)


def test_a_stored_correction_is_of_one_number(memory_file: Path, tmp_path: Path) -> None:
    twice = Scoring.of(reread=2)
    calibrate(memory_file, output=tmp_path / "twice.safetensors", scoring=twice)
    memory = open_memory(tmp_path / "twice.safetensors")
    assert Scorer.open(memory, scoring=twice).calibrate == ("stored",)
    with pytest.raises(InputError, match="is of reread 2; give the same"):
        Scorer.open(memory)


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="reread 0: a number from 1 to 10"):
        Scoring.of(reread=0)
