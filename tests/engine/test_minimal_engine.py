"""An engine needs six members: everything above the interface works with one that has no network at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from conftest import REVIEWS, Models
from helpers.tiny import run_files, run_words
from transformers import PreTrainedTokenizerBase

from deepthink_cli import (
    DemonstrationSet,
    Engine,
    Gate,
    Memory,
    Method,
    load_memory,
    predict,
    save_memory,
    score,
    think,
)
from deepthink_cli.cli.main import run
from deepthink_cli.engine.base import Reading, ScoringPlan, Sums
from deepthink_cli.events import Detail
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import TokenizedQuery, tokenize_demonstrations
from deepthink_cli.provenance import ModelIdentity


class Similarity(Engine):
    """Tokens are random vectors, and likely after a memory whose vectors are like them."""

    description = "similarity engine"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, identity: ModelIdentity, limits: Limits) -> None:
        self.tokenizer, self.identity, self.limits = tokenizer, identity, limits
        self.vectors = torch.randn(len(tokenizer), 4, generator=torch.Generator().manual_seed(0))  # (vocabulary, 4)

    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        return [self._present(reading) for reading in readings]

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        return [[[self._score(memory, ids) for ids in query.answers] for query in plan.queries] for memory in memories]

    def _present(self, reading: Reading) -> Memory:
        past = 0 if reading.history is None else reading.history.values[0].mean(dim=1, keepdim=True)
        vectors = self.vectors[list(reading.token_ids)][None] + past  # (1, L, 4)
        return Memory((vectors,), (vectors + 1,))

    def _score(self, memory: Memory, ids: Sequence[int]) -> float:
        return float((self.vectors @ memory.keys[0].mean(dim=(0, 1))).log_softmax(0)[list(ids)].sum())


@pytest.fixture
def engine(llama: Engine) -> Similarity:
    return Similarity(llama.tokenizer, llama.identity, llama.limits)


@pytest.fixture
def memories(engine: Similarity, reviews: DemonstrationSet) -> list[Memory]:
    return list(think(engine, tokenize_demonstrations(engine.tokenizer, reviews), Method(3, Gate(0.1, 0.9))))


def test_it_thinks_as_equation_4_says(memories: list[Memory]) -> None:
    first, second, _ = memories
    present = first.keys[0] + first.values[0].mean(dim=1, keepdim=True)
    torch.testing.assert_close(second.keys[0], 0.1 * present + 0.9 * first.keys[0])
    assert [memory.iteration for memory in memories] == [1, 2, 3]


def test_its_memories_are_saved_and_loaded(memories: list[Memory], tmp_path: Path) -> None:
    save_memory(memories, tmp_path / "mem.safetensors")
    loaded = load_memory(tmp_path / "mem.safetensors", 2)
    assert torch.equal(loaded.values[0], memories[1].values[0])
    assert loaded.provenance == memories[1].provenance


def test_it_scores_and_predicts(engine: Similarity, memories: list[Memory]) -> None:
    (scores,) = score(engine, memories[-1], [TokenizedQuery((5, 6), ((7,), (8, 9)))])
    assert scores.means == (scores.sums[0], scores.sums[1] / 2)
    predictions = list(predict(engine, memories, ["fine", "a dull film"]))
    assert [prediction.iteration for prediction in predictions] == [1, 2, 3] * 2
    assert all(
        prediction.label == max(prediction.scores, key=prediction.scores.__getitem__) for prediction in predictions
    )


@pytest.mark.usefixtures("loaded_anew")
def test_a_run_makes_its_rows_with_it(models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "deepthink_cli.engine.opening.choose_engine",
        lambda model, *_: Similarity(model.tokenizer, model.identity, model.limits),
    )
    words = run_words(
        tmp_path, models("llama"), "-T", "3", "--eta", "0.01,0.1", "--seeds", "2", "--choose-on", "dev", "-q"
    )
    assert run(words) == 0
    rows = [json.loads(line) for line in run_files(tmp_path / "out")["results.jsonl"].splitlines()]
    assert len(rows) == 2 * 2 * 2 * 3  # parts, seeds, etas, iterations
    assert {row["n"] for row in rows} == {12}


def test_what_it_leaves_out_has_a_default(engine: Similarity, memories: list[Memory]) -> None:
    assert (engine.device, engine.told, engine.tokens_together) == ("cpu", Detail, 1)
    assert engine.tokens_held(3) > 10**6 * len(REVIEWS)
    assert engine.place(memories[0]) is memories[0]
    engine.check_ids([10**9], "a query")
    engine.check_memory(memories[0])
