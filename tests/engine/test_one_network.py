"""One network for many threads and memories: results do not change, no state is left behind, copies are few."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import REVIEWS, TEMPLATE, Models, read, readings_of
from helpers.families import write_model
from torch.utils._python_dispatch import TorchDispatchMode

from deepthink_cli import (
    DemonstrationSet,
    Example,
    Gate,
    Method,
    load_model,
    predict,
    score,
    think,
    tokenize_demonstrations,
)
from deepthink_cli.engine.attention import over_memory
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.packing import sequence
from deepthink_cli.engine.reach import Reach
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.thinking import think_together

DEMOS = tuple(range(20, 60))
ATEN = torch.ops.aten
WAITING = (ATEN._local_scalar_dense.default, ATEN.item.default, ATEN.is_nonzero.default)
QUERIES = [TokenizedQuery(tuple(range(50 + n, 58 + 2 * n)), ((9,), (10, 11), (10, 12))) for n in range(12)]


class Watched(TorchDispatchMode):
    """Counts the bytes of live tensors, and how often the program waits for a value."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.peak, self.waits, self.known = 0, 0, 0, set[int]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self.waits += function in WAITING
        for tensor in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.known:
                storage = tensor.untyped_storage()
                self.known.add(storage._cdata)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        return found

    def _gone(self, name: int, size: int) -> None:
        self.known.discard(name)
        self.live -= size


def state(engine: BatchedEngine) -> list[Any]:
    """What a pass changes in a network while it runs."""
    modules = list(engine.model.network.modules())
    hooks = [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in modules]
    return [engine.model.network.config._attn_implementation, [type(one) for one in modules], hooks]


@pytest.mark.parametrize("family", ["llama", pytest.param("gpt2", marks=pytest.mark.soak), "bloom"])
def test_ten_threads_on_one_model_get_what_one_gets(family: str, models: Models, reviews: DemonstrationSet) -> None:
    def work(engine: BatchedEngine, number: int) -> list[Any]:
        memory = read(engine, DEMOS[number:])
        scored = [one.sums for one in score(engine, memory, QUERIES)]
        *_, thought = think(engine, tokenize_demonstrations(engine.tokenizer, reviews), Method(3, Gate(0.1)))
        return [
            scored,
            [[one.label, *one.scores.values()] for one in predict(engine, thought, ["fine", "a long dull film"])],
        ]

    alone = load_model(str(models(family)))
    expected = [work(alone, number) for number in range(10)]
    engine = load_model(str(models(family)))
    before = state(engine)
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda number: work(engine, number), range(10)))
    for one, two in zip(found, expected, strict=True):
        assert one[0] == [pytest.approx(sums, abs=1e-5) for sums in two[0]]
        assert [row[0] for row in one[1]] == [row[0] for row in two[1]]
        assert [row[1:] for row in one[1]] == [pytest.approx(row[1:], abs=1e-5) for row in two[1]]
    assert state(engine) == before


def test_a_network_that_somebody_else_runs_meanwhile_is_refused_not_wrong(llama: BatchedEngine) -> None:
    ids, here = torch.tensor([[5, 6]]), Reach((), (sequence(0, 2),))
    with ThreadPoolExecutor(1) as pool, llama.model.lock, over_memory(llama.model.network, [here]):
        with pytest.raises(RuntimeError, match=r"holding LanguageModel\.lock"):
            pool.submit(lambda: llama.model.network(input_ids=ids)).result()
        llama.model.network(input_ids=ids, use_cache=False)


def test_whoever_holds_the_lock_can_predict(models: Models, reviews: DemonstrationSet) -> None:
    engine = load_model(str(models("llama")))
    (memory,) = readings_of(engine, reviews, Method(1))
    with engine.model.lock:
        assert len(list(predict(engine, memory, ["fine", "a long dull film"], chunk=1))) == 2


@pytest.mark.parametrize(
    ("count", "momentum", "copies"), [pytest.param(1, 0.0, 2, marks=pytest.mark.soak), (4, 0.9, 3)]
)
def test_thinking_together_holds_three_copies_of_its_memories_at_most(
    count: int, momentum: float, copies: int, tmp_path: Path
) -> None:
    # So deep that a pass's own activations are small beside the memory.
    folder = write_model(tmp_path / "deep", "llama", num_hidden_layers=24, num_key_value_heads=4)
    engine = load_model(str(folder), batch_tokens=4096)
    long_reviews = DemonstrationSet.of([Example(text, label) for text, label in REVIEWS * 2], TEMPLATE)
    demonstrations = tokenize_demonstrations(engine.tokenizer, long_reviews)
    memory = engine.model.one_token.nbytes * len(demonstrations.token_ids)
    thoughts = [(demonstrations, Method(4, Gate(0.1 + n / 100, momentum))) for n in range(count)]
    with Watched() as watched:
        for memories in think_together(engine, thoughts):
            if memories[0].iteration == 1:
                watched.peak = watched.live  # ignores what the first reading allocated
            memories.clear()
    assert copies - 0.5 < watched.peak / (count * memory) < copies + 0.25
