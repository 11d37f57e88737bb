"""Layers with attention windows: every token attends to what the model's own mask lets it attend to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import read
from families import WINDOWED, write_model
from queries import QUERIES, assert_close, plain_scores
from transformers import CONFIG_MAPPING, DynamicCache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from deepthink_cli import Gate, Memory, Method, load_model, score, think
from deepthink_cli.engine import kernels
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.choice import load_language_model
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.engine.reach import STEP
from deepthink_cli.engine.windows import UnsupportedAttention, Window, model_mask, narrowed
from deepthink_cli.errors import InputError
from deepthink_cli.memory import from_cache
from deepthink_cli.model.families import refuse_unfit, window_sizes
from deepthink_cli.model.opening import open_model
from deepthink_cli.options import ModelOptions
from deepthink_cli.provenance import TokenizedDemonstrations

PADDED = {"gpt_neo", "gemma3n_text"}  # families with windows that cannot be packed
LENGTHS = (4, 8, 12, 32)  # half a window, one, one and a half, and four
ENGINES = (PackedEngine, PaddedEngine)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], BatchedEngine]:
    """Engines of families with windows of 8 tokens, each loaded once."""
    engines: dict[str, BatchedEngine] = {}

    def engine(family: str) -> BatchedEngine:
        if family not in engines:
            engines[family] = load_model(str(write_model(tmp_path_factory.mktemp(family), family, **WINDOWED[family])))
        return engines[family]

    return engine


def tokens(count: int) -> tuple[int, ...]:
    return tuple(5 + 7 * number % 300 for number in range(count))


def engines_of(engine: BatchedEngine) -> list[BatchedEngine]:
    """The engine, and the padded one."""
    return [engine, PaddedEngine(engine.model)]


def present_by_the_model(engine: BatchedEngine, ids: tuple[int, ...], history: Memory, start: int) -> Memory:
    """A reading by the model's own forward pass, with its own masks, after a cache of the history."""
    layers = zip(history.keys, history.values, strict=True)
    cache = DynamicCache([(keys[None].clone(), values[None].clone()) for keys, values in layers])
    arguments: dict[str, Any] = {"input_ids": torch.tensor([ids]), "past_key_values": cache}
    if start != history.length:
        arguments["position_ids"] = torch.arange(start, start + len(ids))[None]
    with torch.inference_mode():
        engine.model.network(**arguments)
    return from_cache(cache, len(ids))


@pytest.mark.parametrize("family", WINDOWED)
def test_a_family_with_windows_gets_the_engine_that_the_probe_finds_right(
    family: str, windowed: Callable[[str], BatchedEngine]
) -> None:
    assert isinstance(windowed(family), PaddedEngine if family in PADDED else PackedEngine)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("family", WINDOWED)
def test_one_reading_is_plain_in_context_learning_at_any_length(
    family: str, length: int, windowed: Callable[[str], BatchedEngine]
) -> None:
    engine = windowed(family)
    expected = [plain_scores(engine, tokens(length), query) for query in QUERIES]
    for each in engines_of(engine):
        memory = read(each, tokens(length))
        for scores, right in zip(score(each, memory, QUERIES), expected, strict=True):
            assert scores.sums == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("positions", ["continued", "restarted"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("family", WINDOWED)
def test_later_readings_are_the_models_own_passes_after_the_history(
    family: str, length: int, positions: Any, windowed: Callable[[str], BatchedEngine]
) -> None:
    engine, start = windowed(family), length if positions == "continued" else 0
    if engine.limits.relative and positions == "restarted":
        with pytest.raises(InputError, match="has no positions to restart"):
            read(engine, tokens(length), read(engine, tokens(length)), 0)
        return
    demos = TokenizedDemonstrations.of(engine.tokenizer, tokens(length)) if False else tokens(length)
    histories = [read(each, demos) for each in engines_of(engine)]
    for _ in (2, 3):
        presents = [
            each.read([Reading(demos, history, start)])[0]
            for each, history in zip(engines_of(engine), histories, strict=True)
        ]
        for present, history in zip(presents, histories, strict=True):
            assert_close(present, present_by_the_model(engine, demos, history, start))
        histories = [
            history.gate(present, 0.3) for history, present in zip(histories, presents, strict=True)
        ]
    scores = [score(each, history, QUERIES) for each, history in zip(engines_of(engine), histories, strict=True)]
    for packed, padded in zip(*scores, strict=True):
        assert packed.sums == pytest.approx(padded.sums, abs=1e-3)
