"""The real llama.cpp restores exported memories and scores as we do, with tiny models and with SmolLM2."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from deepthink_cli.model.tokens import TokenizedQuery

pytest.importorskip("xllamacpp", reason="no llama-server here: pip install -c constraints.txt '.[soak]'")
pytest.importorskip("gguf", reason="gguf is not installed")

from real_model import as_float32

QUERIES = [
    Query("an utter bore", ("positive", "negative")),
    Query("the plot goes nowhere but the actors shine", ("positive", "negative", "neither")),
]

F32, F16 = 0, 1  # ggml's numbers of the types of caches


class LlamaServer:
    """A llama-server with one slot, and a folder for its states; `cache` is a type of ggml."""

    def __init__(self, model: Path, slots: Path, cache: int = F32, flash_attention: bool = False) -> None:
        import xllamacpp

        slots.mkdir(exist_ok=True)
        settings = xllamacpp.CommonParams()
        settings.model.path, settings.slot_save_path = str(model), f"{slots}/"
        settings.n_ctx, settings.n_parallel, settings.warmup, settings.cache_ram_mib = 2048, 1, False, 0
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        settings.cache_type_k = settings.cache_type_v = cache
        settings.flash_attn_type = int(flash_attention)
        self.server = xllamacpp.Server(settings)

    def ask(self, path: str, **body: Any) -> Any:
        """Send one request."""
        request = urllib.request.Request(
            self.server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def save(self, tokens: Sequence[int], name: str) -> None:
        """Read tokens, and save the state after them."""
        self.ask("/completion", prompt=list(tokens), n_predict=0, cache_prompt=True)
        assert self.ask("/slots/0?action=save", filename=name)["n_saved"] == len(tokens)

    def restore(self, name: str) -> None:
        """Restore a state."""
        self.ask("/slots/0?action=erase")
        self.ask("/slots/0?action=restore", filename=name)

    def scores(self, tokens: Sequence[int], query: TokenizedQuery, known: int) -> list[float]:
        """The log-probability of each candidate, in nats, after tokens in the slot; `known` is the vocabulary size."""
        sums = []
        for answer in query.answers:
            places = range(len(answer))
            sums.append(
                math.fsum(self._next([*tokens, *query.prefix, *answer[:end]], answer[end], known) for end in places)
            )
        return sums

    def _next(self, prompt: list[int], token: int, known: int) -> float:
        """The log-probability of a token after a prompt.

        Normalised again: the server's own sum over the vocabulary, in float32, is off by up to 1e-4. The bias makes the
        server choose this token and leaves the numbers as they are; it gives none where it chooses the end or a part of
        a character.
        """
        asked = {"prompt": prompt, "n_predict": 1, "n_probs": known, "logit_bias": [[token, 1e4]], "cache_prompt": True}
        answer = self.ask("/completion", **asked)
        logs = {each["id"]: each["logprob"] for each in answer["completion_probabilities"][0]["top_logprobs"]}
        return float(logs[token]) - math.log(math.fsum(map(math.exp, logs.values())))


def difference(server: LlamaServer, engine: Engine, folder: Path) -> float:
    """The largest difference of a score of T = 5 by the library from ours, after `export`."""
    reviews = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS], TEMPLATE)
    demonstrations = tokenize_demonstrations(engine.tokenizer, reviews)
    first, *_, five = think(engine, demonstrations, Method(5, Gate(0.1)))
    save_memory([first, five], folder / "mem")
    server.save(demonstrations.token_ids, "saved")
    words = f"export {folder}/mem --to llama.cpp --state {folder}/slots/saved -o {folder}/slots/made"
    assert run(words.split()) == 0
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
    ("family", "cache"),
    [("llama", F16), ("gpt2", F32)],  # ggml computes GELU in float16
)
def test_where_the_library_computes_in_float16_scores_are_near(
    family: str, cache: int, loaded: Loaded, models: Models, tmp_path: Path
) -> None:
    server = LlamaServer(write_gguf(models(family), tmp_path / "tiny.gguf"), tmp_path / "slots", cache, cache == F16)
    assert difference(server, loaded(family), tmp_path) <= 5e-2


def test_the_library_scores_a_memory_of_a_real_model_as_we_do(soak: Soak, tmp_path: Path) -> None:
    if not soak.long:
        pytest.skip("downloads SmolLM2-135M-Instruct (93 MB) and writes it in float32 (1.1 GB): run with --soak")
    from real_model import gguf_file, real_model

    engine, quantized = load_model(str(real_model())), gguf_file()
    server = LlamaServer(as_float32(quantized, tmp_path / "float32.gguf"), tmp_path / "slots")
    assert difference(server, engine, tmp_path) <= 1e-4
    server = LlamaServer(quantized, tmp_path / "slots", F16, True)
    assert difference(server, engine, tmp_path) <= 0.5
