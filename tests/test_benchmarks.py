"""The benchmarks: other ways to score give our scores, and the command writes its files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

import harness
import speed
from cells import Rounds as RoundsOf
from cells import Work, difference, measure, read_work
from deepthink_cli import score
from deepthink_cli.model import LanguageModel
from floor import products_of
from official_way import official_scores
from shapes import build_model, memory_ids, random_memory, workload

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH = 200, 32, 2, 4, 24
SHAPES = {
    "gpt2": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 128},
    "llama": {
        "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2,
        "intermediate_size": 48, "max_position_embeddings": 128,
    },
}  # fmt: skip


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory with nothing but a tiny configuration."""
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    AutoConfig.for_model(request.param, vocab_size=VOCABULARY, **ends, **SHAPES[request.param]).save_pretrained(
        tmp_path
    )
    return tmp_path


@pytest.fixture
def model(shape: Path) -> LanguageModel:
    return build_model(str(shape))


def test_the_official_way_gives_the_same_scores(model: LanguageModel) -> None:
    memory = model.read(memory_ids(VOCABULARY, LENGTH))
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    ours = [list(one.sums) for one in score(model, memory, queries)]
    assert difference(ours, official_scores(model, memory, queries, batch_size=5)) < 1e-4
    assert difference(ours, official_scores(model, memory, queries, batch_size=5, width=70)) < 1e-4


def test_the_harness_gives_the_same_scores(model: LanguageModel) -> None:
    if not harness.installed():
        pytest.skip("lm-evaluation-harness is not installed (extra: benchmark)")
    ids = memory_ids(VOCABULARY, LENGTH)
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    ours = [list(one.sums) for one in score(model, model.read(ids), queries)]
    assert difference(ours, harness.Harness(model, batch_size=5).scores(ids, queries)) < 1e-4


def test_the_memory_decides_what_random_weights_answer(model: LanguageModel) -> None:
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    with_it = [list(one.sums) for one in score(model, model.read(memory_ids(VOCABULARY, LENGTH)), queries)]
    without = [list(one.sums) for one in score(model, random_memory(model, 0), queries)]
    assert difference(with_it, without) > 0.01


@pytest.mark.parametrize("shape", ["gpt2"], indirect=True)
def test_the_products_of_a_network_are_counted(model: LanguageModel) -> None:
    memory = model.read(memory_ids(VOCABULARY, LENGTH))
    queries = workload(VOCABULARY, inputs=3, candidate_tokens=2)
    found = products_of(model, memory, lambda: score(model, memory, queries))
    # No two candidates share a first token here: each is fed but for its last token, and read before both.
    assert all(len({answer[0] for answer in query.answers}) == 4 for query in queries)
    fed = sum(len(query.prefix) + 4 for query in queries)
    weights = LAYERS * 12 * WIDTH * WIDTH  # of attention 4, of the two-layer perceptron 8 widths squared
    attention = 2 * WIDTH * LENGTH
    read = 3 * (1 + 4)
    unread = (fed - read) * (8 * WIDTH * WIDTH + attention)  # what the last layer leaves out
    assert found.flops == 2 * (fed * (weights + LAYERS * attention) - unread + read * WIDTH * VOCABULARY)
    assert found.seconds() > 0


def test_the_fastest_batch_size_is_kept(model: LanguageModel) -> None:
    ids = tuple(memory_ids(VOCABULARY, LENGTH))
    work = Work(model, ids, read_work(model, ids)[0], workload(VOCABULARY, inputs=2, candidate_tokens=2))
    found = measure(work, ["official", "products"], RoundsOf(all=2, official=2))
    assert list(found["rounds"]) == ["official", "deepthink", "products"]
    assert found["batch"]["official"] in (8, 16)
    assert len(found["rounds"]["official"]) == 3
    assert found["same_argmax"] == {"official": True}


def test_the_command_writes_its_three_files_and_keeps_other_cells(
    shape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results"
    command = ["speed.py", "--out", str(out), "--shapes", str(shape), "--parts", "speed", "--inputs", "2",
               "--rounds", "1", "--official-rounds", "1", "--systems", "official", "deepthink", "no-memory", "products",
               "--candidate-tokens", "2", "--threads", str(torch.get_num_threads())]  # fmt: skip
    for lengths in (["0", "16"], ["16", "32", "4096"]):
        monkeypatch.setattr(sys, "argv", [*command, "--lengths", *lengths])
        speed.main()
    cells = json.loads((out / "speed.json").read_text(encoding="utf-8"))["cells"]
    assert sorted(cell["length"] for cell in cells) == [0, 16, 32]
    assert all(cell["same_argmax"]["official"] and cell["difference"]["official"] < 1e-4 for cell in cells)
    table = (out / "speed.md").read_text(encoding="utf-8")
    assert table.count(f"| {shape.name} |") == 3
    assert (out / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_a_harness_that_is_not_installed_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "installed", lambda: False)
    monkeypatch.setattr(sys, "argv", ["speed.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        speed.main()
    assert "the harness is not installed; run: pip install" in capsys.readouterr().err.splitlines()[-1]
