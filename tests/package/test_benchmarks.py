"""The benchmarks: other ways to score give our scores, and the command writes its files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from conftest import Loaded
from helpers.families import FAMILIES
from helpers.records import recorded
from helpers.said import Captured
from transformers import AutoConfig

import harness
import speed
from cells import difference
from deepthink_cli import Memory, score
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.batches import BatchedEngine
from floor import products_of
from gpu import by_transformers
from official_way import official_scores
from shapes import build_engine, memory_ids, workload

VOCABULARY, LENGTH = 200, 24
SHAPES = {name: FAMILIES[name] for name in ("gpt2", "llama")}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory with nothing but a tiny configuration."""
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    AutoConfig.for_model(request.param, vocab_size=VOCABULARY, **ends, **SHAPES[request.param]).save_pretrained(
        tmp_path
    )
    return tmp_path


@pytest.fixture
def engine(shape: Path) -> BatchedEngine:
    return build_engine(str(shape))


def first_reading(engine: BatchedEngine) -> Memory:
    """The memory of a first reading of `LENGTH` tokens."""
    (memory,) = engine.read([Reading(tuple(memory_ids(VOCABULARY, LENGTH)))])
    return memory


def test_the_official_way_gives_the_same_scores(engine: BatchedEngine) -> None:
    memory = first_reading(engine)
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    ours = [list(one.sums) for one in score(engine, memory, queries)]
    assert difference(ours, official_scores(engine.model, memory, queries, batch_size=5)) < 1e-4
    assert difference(ours, official_scores(engine.model, memory, queries, batch_size=5, width=70)) < 1e-4


def test_the_harness_gives_the_same_scores(engine: BatchedEngine) -> None:
    if not harness.installed():
        pytest.skip("lm-evaluation-harness is not installed (extra: benchmark)")
    ids = memory_ids(VOCABULARY, LENGTH)
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    ours = [list(one.sums) for one in score(engine, first_reading(engine), queries)]
    assert difference(ours, harness.Harness(engine.model, batch_size=5).scores(ids, queries)) < 1e-4


@pytest.mark.parametrize("shape", ["gpt2"], indirect=True)
def test_the_products_of_a_network_are_counted(engine: BatchedEngine) -> None:
    memory = first_reading(engine)
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    found = products_of(engine, memory, queries)
    # No two candidates share a first token here: each is fed but for its last token, and read before both.
    assert all(len({answer[0] for answer in query.answers}) == 4 for query in queries)
    fed = sum(len(query.prefix) + 4 for query in queries)
    layers, width = 2, 32
    weights = layers * 12 * width * width  # of attention 4, of the two-layer perceptron 8 widths squared
    attention = 2 * width * LENGTH
    read = 3 * (1 + 4)
    unread = (fed - read) * (8 * width * width + attention)  # what the last layer leaves out
    assert found.flops == 2 * (fed * (weights + layers * attention) - unread + read * width * VOCABULARY)
    assert found.seconds() > 0


def test_a_row_is_printed_and_recorded_for_every_length_that_fits(
    shape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = tmp_path / "results" / "speed.json"
    words = f"speed.py --record {path} --shapes {shape} --parts speed --inputs 2 --rounds 1 --official-rounds 1"
    words += " --systems official deepthink no-memory products --candidate-tokens 2 --lengths 16 32 4096"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--threads", str(torch.get_num_threads())])
    speed.main()
    assert capsys.readouterr().out.count(f"| {shape.name} |") == 2
    rows = recorded(path)
    assert [row["L"] for row in rows] == [16, 32]
    assert all(row["same label"] == "yes" and row["difference"] < 1e-4 for row in rows)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("cached", [False, True])
def test_padded_batches_by_transformers_score_as_after_the_memory(family: str, cached: bool, loaded: Loaded) -> None:
    engine = loaded(family)
    words = engine.model.network.config.vocab_size
    ids, queries = memory_ids(words, 30), workload(words, 7, candidate_tokens=1)
    (memory,) = engine.read([Reading(tuple(ids))])
    (expected,) = engine.score([memory], engine.plan(queries))
    assert by_transformers(engine, ids, queries, batch=3, cached=cached) == [
        pytest.approx(row, abs=1e-4) for row in expected
    ]
