"""NaN and infinity, in weights, memories and scores, stop the program with the place named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Models, read, readings_of
from helpers.said import Captured

from deepthink_cli import DemonstrationSet, load_model, predict, score
from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery

BAD = [float("nan"), float("inf"), -float("inf")]


@pytest.fixture
def engine(models: Models) -> Engine:
    """A model of its own, to be broken."""
    return load_model(str(models("llama")))


@pytest.fixture
def memory(engine: Engine, reviews: DemonstrationSet) -> Memory:
    return next(readings_of(engine, reviews))


def broken(memory: Memory, value: float, layer: int) -> Memory:
    values = [tensor.clone() for tensor in memory.values]
    values[layer][1, 2, 3] = value
    return replace(memory, values=tuple(values))


@pytest.mark.parametrize("value", BAD)
def test_a_reading_that_is_not_finite_names_the_layer(engine: Engine, value: float) -> None:
    engine.model.network.get_parameter("model.layers.1.self_attn.v_proj.weight").data[0, 0] = value
    with pytest.raises(DeepThinkError, match=r"^LlamaForCausalLM: layer 1's values are NaN or infinite: the weights "):
        read(engine, [5, 6, 7])


@pytest.mark.parametrize("value", BAD[:2])
def test_a_score_that_is_not_finite_names_the_input(engine: Engine, memory: Memory, value: float) -> None:
    inputs = [Query("fine", ("yes", "no"), where="in.jsonl:1"), Query("poor", ("yes", "no"), where="in.jsonl:2")]
    assert len(list(predict(engine, memory, inputs))) == 2
    engine.model.network.get_parameter("model.norm.weight").data[0] = value
    with pytest.raises(
        DeepThinkError, match=r"^in\.jsonl:1: the score of candidate 1 is (nan|-inf): the weights hold NaN"
    ):
        list(predict(engine, memory, inputs))
    with pytest.raises(DeepThinkError, match=r"^query 1: the score of candidate 1 is "):
        score(engine, memory, [TokenizedQuery((5, 6), ((7,), (8,)))])


def test_overflow_in_float16_is_found_and_explained(
    models: Models, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    engine = load_model(str(models("llama")))
    engine.model.network.get_parameter("model.layers.0.mlp.down_proj.weight").data *= 1e6
    engine.model.network.save_pretrained(tmp_path / "large")
    engine.tokenizer.save_pretrained(tmp_path / "large")
    command = ["think", str(demos), "-m", str(tmp_path / "large"), "-q", "-o", str(tmp_path / "mem.safetensors")]
    assert run([*command, "--dtype", "float16"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("deepthink: LlamaForCausalLM: layer 1's keys are NaN or infinite: float16 ends at 65,504")
    assert error.endswith("use --dtype bfloat16 or float32\n")
    assert not (tmp_path / "mem.safetensors").exists()
    assert run([*command, "--dtype", "bfloat16"]) == 0


def test_overflow_in_a_score_in_float16_is_explained(engine: Engine, memory: Memory, models: Models) -> None:
    half = load_model(str(models("llama")), dtype="float16")
    half.model.network.get_parameter("model.layers.1.mlp.down_proj.weight").data.fill_(6e4)
    with pytest.raises(DeepThinkError, match=r"^in\.jsonl:7: the score of candidate 1 is .* float16 ends at 65,504"):
        list(predict(half, memory, [Query("fine", ("yes", "no"), where="in.jsonl:7")]))
