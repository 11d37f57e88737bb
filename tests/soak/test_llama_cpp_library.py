"""The real llama.cpp restores exported memories and scores as we do, with tiny models and with SmolLM2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Soak, write_reviews
from tiny_gguf import write_gguf

from deepthink_cli import Engine, Query, load_memory, load_model, score, tokenize_queries
from deepthink_cli.cli.main import run

pytest.importorskip("xllamacpp", reason="no llama-server here: pip install xllamacpp gguf accelerate")
pytest.importorskip("gguf", reason="gguf is not installed")
from llama_server import F16, F32, LlamaServer, as_float32

Models = Callable[[str], Path]
QUERIES = [
    Query("an utter bore", ("positive", "negative")),
    Query("the plot goes nowhere but the actors shine", ("positive", "negative", "neither")),
]


def difference(server: LlamaServer, engine: Engine, model: str, folder: Path, words: str = "") -> float:
    """The largest difference of a score of T = 5 by the library from ours, after `think` and `export`."""
    memory, rows = folder / "mem.safetensors", write_reviews(folder / "rows.jsonl")
    assert run(f"think {rows} -m {model} -T 5 --eta 0.1 --keep 1,5 -o {memory} -q".split()) == 0
    five = load_memory(memory)
    assert five.provenance is not None
    tokens = five.provenance.demonstrations.token_ids
    server.save(tokens, "saved")
    saved, made = folder / "slots" / "saved", folder / "slots" / "made"
    assert run(f"export {memory} --to llama.cpp --state {saved} -o {made} {words}".split()) == 0
    server.restore("made")
    queries = tokenize_queries(engine.tokenizer, five.provenance.demonstrations, QUERIES)
    known = len(engine.tokenizer)
    theirs = [server.scores(tokens, query, known) for query in queries]
    ours = [each.sums for each in score(engine, five, queries)]
    return max(abs(a - b) for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_the_library_scores_a_tiny_memory_as_we_do(family: str, models: Models, tmp_path: Path) -> None:
    server = LlamaServer(write_gguf(models(family), tmp_path / "tiny.gguf"), tmp_path / "slots")
    assert difference(server, load_model(str(models(family))), str(models(family)), tmp_path) <= 1e-4


@pytest.mark.parametrize(
    ("family", "cache", "words"),
    [("llama", F16, ""), ("gpt2", F32, "--weights f16")],  # ggml computes GELU in float16
)
def test_where_the_library_computes_in_float16_scores_are_near(
    family: str, cache: int, words: str, models: Models, tmp_path: Path
) -> None:
    server = LlamaServer(write_gguf(models(family), tmp_path / "tiny.gguf"), tmp_path / "slots", cache, cache == F16)
    assert difference(server, load_model(str(models(family))), str(models(family)), tmp_path, words) <= 5e-2


def test_the_library_scores_a_memory_of_a_real_model_as_we_do(soak: Soak, tmp_path: Path) -> None:
    if not soak.long:
        pytest.skip("downloads SmolLM2-135M-Instruct (98 MB) and writes it in float32 (540 MB): run with --soak")
    from real_model import gguf_file

    quantized = gguf_file()
    whole = as_float32(quantized, tmp_path / "float32.gguf")
    engine = load_model(str(whole))
    server = LlamaServer(whole, tmp_path / "slots")
    assert difference(server, engine, str(whole), tmp_path) <= 1e-4
    server = LlamaServer(quantized, tmp_path / "slots", F16, True)
    assert difference(server, engine, str(whole), tmp_path, "--weights quantized") <= 0.5
