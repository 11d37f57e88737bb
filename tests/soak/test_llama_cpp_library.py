"""The real llama.cpp restores exported memories and scores as we do, with tiny models and with SmolLM2."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import REVIEWS, TEMPLATE, Loaded, Models, Soak
from helpers.tiny_gguf import write_gguf

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Example,
    Gate,
    Method,
    Query,
    load_model,
    save_memory,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.cli.main import run

pytest.importorskip("xllamacpp", reason="no llama-server here: pip install -c constraints.txt '.[soak]'")
pytest.importorskip("gguf", reason="gguf is not installed")
from helpers.llama_server import F16, F32, LlamaServer

from real_model import as_float32

QUERIES = [
    Query("an utter bore", ("positive", "negative")),
    Query("the plot goes nowhere but the actors shine", ("positive", "negative", "neither")),
]


def difference(server: LlamaServer, engine: Engine, folder: Path, weights: str = "f32") -> float:
    """The largest difference of a score of T = 5 by the library from ours, after `export`."""
    reviews = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)
    demonstrations = tokenize_demonstrations(engine.tokenizer, reviews)
    first, *_, five = think(engine, demonstrations, Method(5, Gate(0.1)))
    save_memory([first, five], folder / "mem")
    server.save(demonstrations.token_ids, "saved")
    words = f"export {folder}/mem --to llama.cpp --state {folder}/slots/saved -o {folder}/slots/made"
    assert run([*words.split(), "--weights", weights]) == 0
    server.restore("made")
    queries = tokenize_queries(engine.tokenizer, demonstrations, QUERIES)
    theirs = [server.scores(demonstrations.token_ids, query, len(engine.tokenizer)) for query in queries]
    ours = [each.sums for each in score(engine, five, queries)]
    return max(abs(a - b) for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_the_library_scores_a_tiny_memory_as_we_do(family: str, loaded: Loaded, models: Models, tmp_path: Path) -> None:
    server = LlamaServer(write_gguf(models(family), tmp_path / "tiny.gguf"), tmp_path / "slots")
    assert difference(server, loaded(family), tmp_path) <= 1e-4


@pytest.mark.parametrize(
    ("family", "cache", "weights"),
    [("llama", F16, "f32"), ("gpt2", F32, "f16")],  # ggml computes GELU in float16
)
def test_where_the_library_computes_in_float16_scores_are_near(
    family: str, cache: int, weights: str, loaded: Loaded, models: Models, tmp_path: Path
) -> None:
    server = LlamaServer(write_gguf(models(family), tmp_path / "tiny.gguf"), tmp_path / "slots", cache, cache == F16)
    assert difference(server, loaded(family), tmp_path, weights) <= 5e-2


def test_the_library_scores_a_memory_of_a_real_model_as_we_do(soak: Soak, tmp_path: Path) -> None:
    if not soak.long:
        pytest.skip("downloads SmolLM2-135M-Instruct (93 MB) and writes it in float32 (1.1 GB): run with --soak")
    from real_model import gguf_file, real_model

    engine, quantized = load_model(str(real_model())), gguf_file()
    server = LlamaServer(as_float32(quantized, tmp_path / "float32.gguf"), tmp_path / "slots")
    assert difference(server, engine, tmp_path) <= 1e-4
    server = LlamaServer(quantized, tmp_path / "slots", F16, True)
    assert difference(server, engine, tmp_path, "quantized") <= 0.5
