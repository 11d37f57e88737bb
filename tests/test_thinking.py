"""The method against the paper's equations in float64 (tests/helpers/oracle.py), one memory or several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Loaded, Models, readings_of, shared
from helpers.families import FAMILIES
from helpers.oracle import GPT2Oracle, LlamaOracle, Oracle
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from deepthink_cli import (
    DemonstrationSet,
    Example,
    Gate,
    Memory,
    Method,
    Query,
    load_model,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.data.examples import queries_of
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.method import Positions
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.thinking import think_together

ORACLES: dict[str, type[Oracle]] = {"gpt2": GPT2Oracle, "llama": LlamaOracle}
QUERY = Query("a strange but lovely film", ("positive", "negative", "very negative", "12"))


def relative_error(memory: Memory, layers: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """The largest relative error of a layer's keys or values."""
    pairs = [
        (found.double().numpy(), expected)
        for layer, (keys, values) in enumerate(layers)
        for found, expected in ((memory.keys[layer], keys), (memory.values[layer], values))
    ]
    return max(float(np.linalg.norm(found - expected) / np.linalg.norm(expected)) for found, expected in pairs)


def assert_as_the_paper_says(engine: Engine, oracle: Oracle, momentum: float, positions: Positions) -> None:
    given = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)
    demos = tokenize_demonstrations(engine.tokenizer, given)
    memories = list(think(engine, demos, Method(4, Gate(0.1, momentum), positions)))
    expected = oracle.think(demos.token_ids, 4, 0.1, momentum, restarted=positions == "restarted")
    (query,) = tokenize_queries(engine.tokenizer, given.template, [QUERY])
    for memory, layers in zip(memories, expected, strict=True):
        assert relative_error(memory, layers) <= 1e-4
        scores = [oracle.score(layers, query.prefix, answer) for answer in query.answers]
        assert score(engine, memory, [query])[0].sums == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize("positions", ["continued", "restarted"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("family", ORACLES)
def test_memory_and_scores_follow_the_equations(
    family: str, momentum: float, positions: Positions, loaded: Loaded
) -> None:
    engine = loaded(family)
    assert_as_the_paper_says(engine, ORACLES[family](engine.model.network), momentum, positions)


@pytest.mark.parametrize(
    ("family", "tokenizer"),
    [("gpt2", "gpt2"), ("llama", "llama2"), pytest.param("llama", "pythia", marks=pytest.mark.soak)],
)
def test_the_equations_hold_with_real_tokenizers(family: str, tokenizer: str, tmp_path: Path) -> None:
    words = AutoTokenizer.from_pretrained(shared(f"tokenizers/{tokenizer}"))
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **{**FAMILIES[family], "vocab_size": len(words)})
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    engine = load_model(str(tmp_path))
    assert_as_the_paper_says(engine, ORACLES[family](engine.model.network), 0.9, "continued")


def test_the_equations_hold_for_real_weights() -> None:
    engine = load_model(str(shared("models/stories260K")))
    assert_as_the_paper_says(engine, LlamaOracle(engine.model.network), 0.0, "continued")


def test_the_gate_accumulates_in_float32_where_the_model_is_bfloat16(models: Models, reviews: DemonstrationSet) -> None:
    engine = load_model(str(models("llama")), dtype="bfloat16")
    first, second = think(engine, tokenize_demonstrations(engine.tokenizer, reviews), Method(2, Gate(0.001)))
    assert second.keys[1].dtype == torch.float32
    lost = second.keys[1].to(torch.bfloat16) == first.keys[1].to(torch.bfloat16)
    assert lost.float().mean() > 0.7
    assert (second.keys[1] != first.keys[1]).float().mean() > 0.9


def test_the_order_of_readings_is_a_generator_that_can_be_stopped(llama: Engine, reviews: DemonstrationSet) -> None:
    readings = readings_of(llama, reviews, Method(1000))
    assert [next(readings).iteration for _ in range(3)] == [1, 2, 3]


def test_drift_is_the_relative_change_of_keys_and_values(llama: Engine, reviews: DemonstrationSet) -> None:
    first, second = think(llama, tokenize_demonstrations(llama.tokenizer, reviews), Method(2, Gate(0.5)))
    expected = float((second.keys[1] - first.keys[1]).norm() / first.keys[1].norm())
    assert second.drift[0].keys[1] == pytest.approx(expected, rel=1e-5)


def test_the_paper_fits_on_one_screen() -> None:
    source = Path(__file__).parent.parent / "deepthink_cli" / "thinking.py"
    assert len(source.read_text().splitlines()) <= 50


@pytest.fixture
def demonstrations(llama: PackedEngine, reviews: DemonstrationSet) -> TokenizedDemonstrations:
    return tokenize_demonstrations(llama.tokenizer, reviews)


@pytest.mark.parametrize("kind", [PackedEngine, PaddedEngine])
def test_methods_that_share_passes_think_as_each_alone(
    kind: type[PackedEngine], llama: PackedEngine, reviews: DemonstrationSet, demonstrations: TokenizedDemonstrations
) -> None:
    engine = kind(llama.model)
    shorter = tokenize_demonstrations(engine.tokenizer, replace(reviews, examples=reviews.examples[:2]))
    thoughts = [
        (demonstrations, Method(4, Gate(0.1))),
        (demonstrations, Method(4, Gate(0.01, 0.9))),
        (shorter, Method(4, Gate(0.1), "restarted")),
    ]
    *_, together = think_together(engine, thoughts)
    for memory, thought in zip(together, thoughts, strict=True):
        *_, alone = think(engine, *thought)
        assert (memory.provenance, memory.iteration) == (alone.provenance, 4)
        for actual, expected in zip((*memory.keys, *memory.values), (*alone.keys, *alone.values), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_methods_share_the_first_two_readings_and_every_pass(
    llama: PackedEngine, demonstrations: TokenizedDemonstrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[list[int]] = []
    whole = PackedEngine.read_pass

    def counted(self: PackedEngine, readings: Sequence[Reading]) -> list[Memory]:
        passes.append([len(reading) for reading in readings])
        return whole(self, readings)

    monkeypatch.setattr(PackedEngine, "read_pass", counted)
    length = len(demonstrations.token_ids)
    list(think_together(llama, [(demonstrations, Method(3, Gate(eta))) for eta in (0.001, 0.01, 0.1)]))
    assert passes == [[length], [length], [length] * 3]


def test_the_first_to_end_ends_all(llama: PackedEngine, demonstrations: TokenizedDemonstrations) -> None:
    thoughts = [(demonstrations, Method(2, Gate(0.1))), (demonstrations, Method(5, Gate(0.1)))]
    assert len(list(think_together(llama, thoughts))) == 2


def test_a_list_that_is_emptied_changes_no_later_reading(
    llama: PackedEngine, demonstrations: TokenizedDemonstrations
) -> None:
    thoughts = [(demonstrations, Method(3, Gate(0.1)))]
    *_, kept = think_together(llama, thoughts)
    for memories in think_together(llama, thoughts):
        last = list(memories)
        memories.clear()
    assert all(map(torch.equal, last[0].keys, kept[0].keys))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Method(0), "iterations 0: "),
        (lambda: Method(2, positions="Continued"), "positions Continued: use continued or restarted"),  # type: ignore[arg-type]
        (lambda: Gate(5.0), "eta 5.0, momentum 0.0: each is from 0 to 1"),
        (lambda: Gate(float("nan")), "eta nan"),
        (lambda: queries_of("one text", ()), "inputs: one text; give a list of texts"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_given(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong()
