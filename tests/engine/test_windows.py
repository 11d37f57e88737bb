"""Layers with attention windows: every token attends to what the model's own mask lets it attend to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Soak, read
from helpers.families import EVERY_WINDOWED, WINDOWED, write_model
from helpers.oracle import LlamaOracle
from helpers.soak import with_soak
from queries import QUERIES, assert_close, plain_scores
from transformers import DynamicCache

from deepthink_cli import Memory, load_model, score
from deepthink_cli.engine import kernels, reach
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.kernels import Attention
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.engine.reach import STEP, UnsupportedAttention, model_mask
from deepthink_cli.errors import InputError
from deepthink_cli.memory import from_cache
from deepthink_cli.model.tokens import TokenizedQuery

PADDED = {"doge", "gemma3n_text", "gpt_neo", "llama4_text"}  # families with windows that cannot be packed
LENGTHS = (4, 8, 12, 32)  # half a window, one, one and a half, and four
EVERY_LENGTH = ("mistral", "gpt_neo", "gemma2")  # of the other families `make soak` tries every length


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


@pytest.mark.parametrize("family", EVERY_WINDOWED)
def test_a_family_with_windows_gets_the_engine_that_the_probe_finds_right(
    family: str, windowed: Callable[[str], BatchedEngine]
) -> None:
    assert isinstance(windowed(family), PaddedEngine if family in PADDED else PackedEngine)


def lengths(family: str, soak: Soak) -> tuple[int, ...]:
    """The lengths that are tried with a family."""
    return LENGTHS if soak.long or family in EVERY_LENGTH else LENGTHS[2:]


@pytest.mark.parametrize("family", EVERY_WINDOWED)
def test_one_reading_is_plain_in_context_learning_at_any_length(
    family: str, windowed: Callable[[str], BatchedEngine], soak: Soak
) -> None:
    for length in lengths(family, soak):
        _is_plain(windowed(family), length)


def _is_plain(engine: BatchedEngine, length: int) -> None:
    expected = [plain_scores(engine, tokens(length), query) for query in QUERIES]
    for each in engines_of(engine):
        memory = read(each, tokens(length))
        for scores, right in zip(score(each, memory, QUERIES), expected, strict=True):
            assert scores.sums == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("positions", ["continued", "restarted"])
@pytest.mark.parametrize("family", EVERY_WINDOWED)
def test_later_readings_are_the_models_own_passes_after_the_history(
    family: str, positions: str, windowed: Callable[[str], BatchedEngine], soak: Soak
) -> None:
    tried = lengths(family, soak)
    # In the suite one length for each kind of positions.
    short = {"continued": tried[:1], "restarted": tried[1:]} if len(tried) == 2 else {}
    for length in short.get(positions, tried):
        _is_the_models_own(windowed(family), length, positions)


def _is_the_models_own(engine: BatchedEngine, length: int, positions: str) -> None:
    start = length if positions == "continued" else 0
    if engine.limits.relative and positions == "restarted":
        with pytest.raises(InputError, match="has no positions to restart"):
            read(engine, tokens(length), read(engine, tokens(length)), 0)
        return
    demos = tokens(length)
    histories = [read(each, demos) for each in engines_of(engine)]
    for _ in (2, 3):
        presents = [
            each.read([Reading(demos, history, start)])[0]
            for each, history in zip(engines_of(engine), histories, strict=True)
        ]
        for present, history in zip(presents, histories, strict=True):
            assert_close(present, present_by_the_model(engine, demos, history, start))
        histories = [history.gate(present, 0.3) for history, present in zip(histories, presents, strict=True)]
    scores = [score(each, history, QUERIES) for each, history in zip(engines_of(engine), histories, strict=True)]
    for packed, padded in zip(*scores, strict=True):
        assert packed.sums == pytest.approx(padded.sums, abs=1e-3)


@pytest.mark.parametrize("positions", ["continued", "restarted"])
@pytest.mark.parametrize("length", LENGTHS)
def test_windows_follow_the_equations(length: int, positions: str, windowed: Callable[[str], BatchedEngine]) -> None:
    engine, restarted = windowed("mistral"), positions == "restarted"
    oracle = LlamaOracle(engine.model.network)
    expected = oracle.think(tokens(length), 3, 0.3, 0.0, restarted)
    for each in engines_of(engine):
        history = read(each, tokens(length))
        for layers in expected:
            for number, (keys, values) in enumerate(layers):
                torch.testing.assert_close(history.keys[number].double(), torch.tensor(keys), rtol=1e-4, atol=1e-4)
                torch.testing.assert_close(history.values[number].double(), torch.tensor(values), rtol=1e-4, atol=1e-4)
            for query, scores in zip(QUERIES, score(each, history, QUERIES), strict=True):
                right = [oracle.score(layers, query.prefix, answer) for answer in query.answers]
                assert scores.sums == pytest.approx(right, abs=1e-3)
            history = history.gate(read(each, tokens(length), history, 0 if restarted else length), 0.3)


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_without_a_kernel_windows_are_the_same(
    family: str, windowed: Callable[[str], BatchedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = windowed(family)
    memory = read(engine, tokens(20))
    expected, present = score(engine, memory, QUERIES), read(engine, tokens(20), memory, 20)
    monkeypatch.setattr(kernels, "_KERNELS", {})
    assert_close(read(engine, tokens(20), memory, 20), present)
    for scores, right in zip(score(engine, memory, QUERIES), expected, strict=True):
        assert scores.sums == pytest.approx(right.sums, abs=1e-4)


@pytest.mark.parametrize("window", [8, 300])
def test_long_readings_in_steps_are_the_models_own_passes(window: int, tmp_path: Path) -> None:
    changes = {**WINDOWED["mistral"], "max_position_embeddings": 2048, "sliding_window": window}
    engine = load_model(str(write_model(tmp_path / "model", "mistral", **changes)))
    ids, others = tokens(2 * STEP + 90), tokens(STEP)[::-1]
    assert isinstance(engine, PackedEngine)
    history = read(engine, ids)
    assert_close(history, engine.model.read(ids))
    readings = [Reading(ids, history, len(ids)), Reading(others), Reading(ids, history, 0)]
    for present, reading in zip(engine.read_pass(readings), readings, strict=True):
        if reading.history is not None:
            assert_close(present, present_by_the_model(engine, ids, reading.history, reading.start))
        else:
            assert_close(present, engine.model.read(others))


def test_a_layer_with_a_window_reads_only_what_a_token_of_the_pass_attends_to(
    windowed: Callable[[str], BatchedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, whole, numbers = windowed("ministral"), Attention.__call__, list[int]()

    def counted(layer: Attention, query: Any, key: Any, *others: Any) -> Any:
        numbers.append(key.shape[2])
        return whole(layer, query, key, *others)

    memory = read(engine, tokens(400))
    monkeypatch.setattr(Attention, "__call__", counted)
    score(engine, memory, QUERIES[1:2])  # 3 + 4 tokens, the last of them 5 after the memory
    windowed_layer, full_layer = numbers[:-2], numbers[-2:]
    assert sorted(windowed_layer) == [2, 5, 7]  # attended to by all, by some, and the row
    assert full_layer == [400, 7]


PREFIXES = (1, 7, 8, 9, 40, STEP + 20)
TRIED = [*product(["mistral"], PREFIXES), *product(["gemma2"], (8, 40))]


@pytest.mark.parametrize(("family", "prefix"), with_soak(product(["mistral", "gemma2"], PREFIXES), TRIED))
def test_a_query_alone_is_scored_however_long_it_is(
    family: str, prefix: int, windowed: Callable[[str], BatchedEngine]
) -> None:
    engine, queries = windowed(family), [TokenizedQuery(tokens(prefix)[::-1], ((5,), (6, 7)))]
    for query in (*queries, TokenizedQuery(queries[0].prefix, ((5,), (6,)))):
        (scores,) = score(engine, read(engine, tokens(19)), [query])
        assert scores.sums == pytest.approx(plain_scores(engine, tokens(19), query), abs=1e-4)


@pytest.mark.usefixtures("loaded_anew")
@pytest.mark.parametrize("size", [8, 4096])
def test_the_probe_finds_a_wrong_window_of_any_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(tmp_path / "model", "mistral", **{**WINDOWED["mistral"], "sliding_window": size})
    assert isinstance(load_model(str(folder)), PackedEngine)
    monkeypatch.setattr(reach, "first_seen", lambda window, slots: slots - window + 2)
    engine = load_model(str(folder))
    assert isinstance(engine, PaddedEngine)


def test_a_mask_that_is_not_causal_with_a_window_is_refused() -> None:
    def nearest(_: Any, __: Any, slots: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return (slots - keys).abs() < 8

    with pytest.raises(UnsupportedAttention, match="its attention mask is custom code"):
        model_mask(mask_function=nearest, local_size=8)
    with pytest.raises(UnsupportedAttention):
        model_mask(mask_function=lambda _, __, slots, keys: keys <= slots, use_vmap=True)
