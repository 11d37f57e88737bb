"""One network for many threads and lanes: results do not change, no state is left behind, copies are few."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from families import write_model
from tiny import run_files, run_words
from torch.utils._python_dispatch import TorchDispatchMode

from deepthink_cli import DemonstrationSet, Memory, load_model, predict, score, think, tokenize_demonstrations
from deepthink_cli.cli.main import run
from deepthink_cli.engine.attention import Reach, over_memory
from deepthink_cli.engine.choice import Engine, engine_of, read_each
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import Block
from deepthink_cli.engine.probe import Verdict
from deepthink_cli.engine.reading import Reading
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import Method
from deepthink_cli.runs import runner as trial
from deepthink_cli.thinking import think_each

Models = Callable[[str], Path]
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


def state(model: LanguageModel) -> list[Any]:
    """What a pass changes in a network while it runs."""
    modules = list(model.network.modules())
    hooks = [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in modules]
    return [model.network.config._attn_implementation, [type(one) for one in modules], hooks]


@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom"])
def test_ten_threads_on_one_model_get_what_one_gets(family: str, models: Models, reviews: DemonstrationSet) -> None:
    def work(model: LanguageModel, number: int) -> list[Any]:
        memory = model.read(DEMOS[number:])
        scored = [one.sums for one in score(model, memory, QUERIES)]
        *_, thought = think(model, tokenize_demonstrations(model.tokenizer, reviews), 3, eta=0.1)
        return [
            scored,
            [[one.label, *one.scores.values()] for one in predict(model, thought, ["fine", "a long dull film"])],
        ]

    expected = [work(load_model(str(models(family))), number) for number in range(10)]
    model = load_model(str(models(family)))
    before = state(model)
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda number: work(model, number), range(10)))
    for one, two in zip(found, expected, strict=True):
        assert one[0] == [pytest.approx(sums, abs=1e-5) for sums in two[0]]
        assert [row[0] for row in one[1]] == [row[0] for row in two[1]]
        assert [row[1:] for row in one[1]] == [pytest.approx(row[1:], abs=1e-5) for row in two[1]]
    assert state(model) == before


def test_a_network_that_somebody_else_runs_meanwhile_is_refused_not_wrong(llama: LanguageModel) -> None:
    ids, here = torch.tensor([[5, 6]]), Reach((), (Block(0, 1, 2, None),))
    with ThreadPoolExecutor(1) as pool, llama.lock, over_memory(llama.network, [here]):
        with pytest.raises(RuntimeError, match=r"holding LanguageModel\.lock"):
            pool.submit(lambda: llama.network(input_ids=ids)).result()
        llama.network(input_ids=ids, use_cache=False)


def test_whoever_holds_the_lock_can_predict(models: Models, reviews: DemonstrationSet) -> None:
    model = load_model(str(models("llama")))
    (memory,) = think(model, tokenize_demonstrations(model.tokenizer, reviews), 1)
    with model.lock:
        assert len(list(predict(model, memory, ["fine", "a long dull film"], chunk=1))) == 2


@pytest.mark.parametrize(("momentum", "copies"), [(0.0, 2), (0.9, 3)])
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_study_holds_three_copies_of_its_memories_at_most(
    lanes: int, momentum: float, copies: int, tmp_path: Path
) -> None:
    # So deep that a pass's own activations are small beside the memory.
    folder = write_model(tmp_path / "deep", "llama", num_hidden_layers=40, num_key_value_heads=4)
    model = replace(load_model(str(folder)), batch_tokens=4096)
    engine_of(model)
    read = tokenize_demonstrations(model.tokenizer, _long_reviews())
    memory = model.token_bytes * len(read.token_ids)
    with Watched() as watched:
        for memories in think_each(model, [(read, Method(4, 0.1 + n / 100, momentum)) for n in range(lanes)]):
            if memories[0].iteration == 1:
                watched.peak = watched.live  # ignores what the first reading allocated
            memories.clear()
    assert copies - 0.5 < watched.peak / (lanes * memory) < copies + 0.25


def test_readings_and_gates_wait_for_a_device_once_whatever_its_layers(tmp_path: Path) -> None:
    counted = []
    for layers in (2, 6):
        model = load_model(str(write_model(tmp_path / str(layers), "llama", num_hidden_layers=layers)))
        history, present = read_each(model, [Reading(DEMOS), Reading(DEMOS[::-1])])
        with Watched() as watched:
            read_each(model, [Reading(DEMOS, history, len(DEMOS))])
            history.advanced(present, 0.1, 0.9)
        counted.append(watched.waits)
    assert counted[0] == counted[1] <= 2


def test_a_memory_is_converted_once_whatever_the_passes(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(load_model(str(models("llama")), dtype="bfloat16"), batch_tokens=12)
    memory = model.read(DEMOS)
    engine_of(model)
    with _Casts(memory.keys[0].shape) as casts:
        score(model, memory, QUERIES)
    assert casts.count == 2 * len(memory.keys)


class _Casts(TorchDispatchMode):
    """Counts conversions of tensors with a memory's shape."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.shape == self.shape and isinstance(args[0], torch.Tensor):
            self.count += found.dtype != args[0].dtype
        return found


def test_a_study_that_runs_out_of_memory_in_the_gate_goes_on_with_fewer_lanes(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "3", "--eta", "0.01,0.1", "--seeds", "2", "-q")
    assert run(words) == 0
    expected = sorted(run_files(tmp_path / "out")["results.jsonl"].splitlines())
    tried: list[int] = []

    def small(model: LanguageModel, given: Sequence[Any]) -> Iterator[list[Memory]]:
        tried.append(len(given))
        for memories in think_each(model, given):
            if len(given) > 1 and memories[0].iteration == 2:
                raise torch.OutOfMemoryError
            yield memories

    monkeypatch.setattr(trial, "think_each", small)
    assert run([*words, "--out", str(tmp_path / "small")]) == 0
    assert sorted(run_files(tmp_path / "small")["results.jsonl"].splitlines()) == expected
    assert tried == [4, 2, 1, 1, 2, 1, 1]


def test_a_study_that_runs_out_of_memory_while_it_scores_writes_every_row_once(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "2", "--eta", "0.01,0.1", "--select", "dev", "-q")
    assert run(words) == 0
    expected = sorted(run_files(tmp_path / "out")["results.jsonl"].splitlines())
    asked, whole = [0], trial.predict_plan

    def full_once(*given: Any) -> Any:
        asked[0] += 1
        if asked[0] == 4:  # a dev set, after the test rows of the same iteration
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
        return whole(*given)

    monkeypatch.setattr(trial, "predict_plan", full_once)
    assert run([*words, "--out", str(tmp_path / "small")]) == 0
    assert sorted(run_files(tmp_path / "small")["results.jsonl"].splitlines()) == expected


def test_lanes_are_as_many_as_the_free_memory_holds(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def counted(model: LanguageModel, given: Sequence[Any]) -> Iterator[list[Memory]]:
        seen.append(len(given))
        return think_each(model, given)

    monkeypatch.setattr(trial, "think_each", counted)
    words = run_words(tmp_path, models("llama"), "-T", "2", "--eta", "0.01,0.1,0.2", "-q")
    for free, lanes in ((2**30, [3]), (1, [1, 1, 1])):
        seen.clear()
        monkeypatch.setattr("deepthink_cli.engine.choice.room", lambda _, free=free: free)
        assert run([*words, "--out", str(tmp_path / str(free))]) == 0
        assert seen == lanes


@pytest.mark.parametrize(("free", "rows"), [(2**40, 3), (3 * 2**14, 1)])
def test_a_padded_pass_has_as_many_rows_as_the_free_memory_holds(free: int, rows: int, models: Models) -> None:
    model = load_model(str(models("bloom")))
    memory = model.read(DEMOS)
    engine = Engine(Verdict("padded"), 1024, free)
    assert min(3, engine.bounds(model, memory, 10)[1]) == rows


def test_a_wide_head_and_attention_by_products_leave_room_for_fewer_tokens(models: Models) -> None:
    llama, capped = load_model(str(models("llama"))), load_model(str(models("gemma2")))
    wide = load_model(str(models("llama")))
    vars(wide)["_head"] = None  # the network's own logits, computed for every token
    vars(wide)["known_tokens"] = 2**20
    memory = llama.read(DEMOS)
    long = Memory(*(tuple(torch.zeros(2, 2**16, 8) for _ in range(2)) for _ in range(2)))
    most = {name: Engine(Verdict(), 2**20, 2**24).bounds(*given)[0] for name, given in {
        "llama": (llama, memory, 10), "head": (wide, memory, 10), "products": (capped, long, 10), "kernel": (llama, long, 10),
    }.items()}  # fmt: skip
    assert most["head"] < most["llama"] == most["kernel"] > most["products"]


def _long_reviews() -> DemonstrationSet:
    from conftest import REVIEWS, TEMPLATE

    from deepthink_cli import Example

    return DemonstrationSet.of([Example(text, label) for text, label in REVIEWS * 2], TEMPLATE)
