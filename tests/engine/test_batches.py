"""Passes of bounded size: many queries and readings give what each alone gives, whatever the size of a pass."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Loaded, Models, read, write_rows
from helpers.families import EVERY_FAMILY
from helpers.said import Captured
from queries import DEMOS, QUERIES, SHARED, assert_close, plain_scores, tensors, with_passes_of

from deepthink_cli import Memory, load_model, score
from deepthink_cli.cli.main import run
from deepthink_cli.engine import budget
from deepthink_cli.engine.base import Reading, ScoringPlan
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.budget import best_tokens
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.probe import check_plain_pass
from deepthink_cli.errors import DeepThinkError, InputError, ran_out_of_memory
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.scoring.likelihood import score_each

LONG, SHORT = DEMOS, tuple(range(60, 65))


def sums(engine: BatchedEngine, memory: Memory, queries: Sequence[TokenizedQuery], tokens: int) -> list[float]:
    return [value for scores in score(with_passes_of(engine, tokens), memory, queries) for value in scores.sums]


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_family_scores_as_whole_prompts_do(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    memory = read(engine, DEMOS)
    expected = [value for query in QUERIES for value in plain_scores(engine, DEMOS, query)]
    for tokens in (7, 50, 4096):  # shorter than a query, a few passes, one pass
        assert sums(engine, memory, QUERIES, tokens) == pytest.approx(expected, abs=1e-4)
    assert sums(engine, memory, QUERIES[:1], 4096) == pytest.approx(expected[: len(SHARED)], abs=1e-4)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_family_reads_together_as_it_reads_alone(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    first = engine.model.read(LONG)
    readings = [Reading(LONG), Reading(SHORT, first, len(LONG)), Reading(LONG, first, len(LONG)), Reading(SHORT)]
    alone = [engine.model.read(reading.token_ids, reading.history, reading.start) for reading in readings]
    for tokens in (1, 45, 4096):  # one a pass, two a pass, all together
        for present, expected in zip(with_passes_of(engine, tokens).read(readings), alone, strict=True):
            assert_close(present, expected)


def test_a_plan_without_rows_is_scored_from_its_queries(llama: BatchedEngine) -> None:
    memory = llama.model.read(DEMOS)
    assert llama.score([memory], ScoringPlan(tuple(QUERIES))) == llama.score([memory], llama.plan(QUERIES))


@pytest.mark.parametrize("family", ["llama", "gemma2", "bloom"])
def test_one_plan_scores_several_memories(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    memories = [read(engine, DEMOS), read(engine, DEMOS[:11])]
    together = score_each(engine, memories, engine.plan(QUERIES))
    assert together == [score(engine, memory, QUERIES) for memory in memories]


@pytest.mark.parametrize("family", ["llama", "gpt_neo"])
def test_without_demonstrations_the_query_is_read_alone(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    memory = read(engine, DEMOS)
    empty = Memory(tuple(keys[:, :0] for keys in memory.keys), tuple(values[:, :0] for values in memory.values))
    expected = [value for query in QUERIES for value in plain_scores(engine, (), query)]
    assert sums(engine, empty, QUERIES, 4096) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_a_scoring_pass_that_does_not_fit_the_device_is_halved(
    family: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_model(str(models(family)))
    memory = read(engine, DEMOS)
    expected = sums(engine, memory, QUERIES, 4096)
    whole, most = BatchedEngine.score_pass, 1

    def small(self: BatchedEngine, pasts: Any, rows: Sequence[Any]) -> Any:
        if len(rows) > most:
            raise torch.OutOfMemoryError
        return whole(self, pasts, rows)

    monkeypatch.setattr(BatchedEngine, "score_pass", small)
    assert sums(engine, memory, QUERIES, 4096) == pytest.approx(expected, abs=1e-5)
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        score(engine, memory, QUERIES[:1])


def test_a_reading_that_does_not_fit_the_device_is_split(llama: BatchedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, most, whole = with_passes_of(llama, 4096), 0, PackedEngine.read_pass

    def small(self: PackedEngine, readings: Sequence[Reading]) -> list[Memory]:
        if len(readings) > most:
            raise torch.OutOfMemoryError
        return whole(self, readings)

    monkeypatch.setattr(PackedEngine, "read_pass", small)
    with pytest.raises(torch.OutOfMemoryError):
        engine.read([Reading(SHORT)])
    most = 1
    for present, expected in zip(engine.read([Reading(SHORT), Reading(LONG)]), (SHORT, LONG), strict=True):
        assert_close(present, llama.model.read(expected))


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_readings_keep_no_more_than_their_own_tokens(family: str, loaded: Loaded) -> None:
    for present in loaded(family).read([Reading(SHORT), Reading(LONG)]):
        assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors(present))


@pytest.mark.parametrize("family", ["llama", "gpt_neo"])
def test_a_reading_too_long_and_one_that_is_not_finite_are_refused(family: str, loaded: Loaded) -> None:
    engine = loaded(family)
    with pytest.raises(InputError, match="too long: 600 tokens"):
        engine.read([Reading(SHORT), Reading((5,) * 600)])
    present = read(engine, LONG)
    broken = replace(present, values=tuple(torch.full_like(values, float("inf")) for values in present.values))
    with pytest.raises(DeepThinkError, match="NaN or infinite"):
        engine.read([Reading(LONG, broken, len(LONG))])


@pytest.mark.parametrize(("family", "name"), [("llama", "packed"), ("bloom", "padded")])
def test_the_tokens_of_a_pass_can_be_given_when_a_model_is_loaded(family: str, name: str, models: Models) -> None:
    engine = load_model(str(models(family)), batch_tokens=12)
    assert (engine.name, engine.batch_tokens, engine.tokens_together) == (name, 12, 12)


@pytest.mark.parametrize(("free", "tokens"), [(2**40, 16384), (2**30, 4000), (0, 256)])
def test_on_cuda_the_tokens_of_a_pass_are_what_half_the_free_memory_holds(
    free: int, tokens: int, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_model(str(models("llama")))
    monkeypatch.setattr(LanguageModel, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2**40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    assert best_tokens(engine.model) == pytest.approx(tokens, rel=0.05)


def test_on_a_processor_a_wide_model_takes_fewer_tokens_a_pass(models: Models) -> None:
    engine = load_model(str(models("llama")))
    assert engine.batch_tokens == 1024
    engine.model.network.base_model.add_module("wide", torch.nn.Linear(1, 11_008, device="meta"))
    assert 700 < best_tokens(engine.model) < 800


@pytest.mark.parametrize(("free", "kept"), [(2**30, True), (2**12, False)])
def test_a_float32_copy_of_the_head_is_kept_where_it_takes_a_small_share_of_the_memory(
    free: int, kept: bool, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "byte_budget", lambda device: free)
    head = load_model(str(models("llama")), dtype="bfloat16").model.head
    assert (head.copy_bytes == 0) == kept
    assert load_model(str(models("llama"))).model.head.copy_bytes == 0  # float32 needs none


CUDA = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1 MiB is free."
PROCESSOR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "400000000 bytes. Error code 12 (Cannot allocate memory)"
)
ERRORS = [
    (torch.OutOfMemoryError(CUDA), "out of memory of the GPU: 2.50 GiB could not be allocated"),
    (RuntimeError(PROCESSOR), "out of memory: 400000000 bytes could not be allocated"),
    (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB). Tried to allocate 12 MB"), "out of memory: 12 MB"),
    (MemoryError(), "out of memory: the memory needed could not be allocated"),
]
KINDS = ["gpu", "processor", "mps", "python"]


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=KINDS)
@pytest.mark.parametrize("command", ["think", "predict"])
def test_what_did_not_fit_is_told_with_a_hint(
    command: str,
    error: Exception,
    told: str,
    demos: Path,
    models: Models,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    memory, inputs = tmp_path / "mem.safetensors", write_rows(tmp_path / "in.jsonl", [{"review": "x"}])
    words = ["think", str(demos), "-m", str(models("llama")), "-T", "1", "-q", "-o", str(memory)]
    assert run(words) == 0

    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(BatchedEngine, "read" if command == "think" else "score", full)
    assert run(words if command == "think" else ["predict", str(memory), str(inputs), "-q"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert told in err
    smaller = "" if command == "think" else "a smaller --batch-tokens, "
    assert f"use {smaller}--dtype bfloat16, --quantize 4bit, --device-map auto, or fewer demonstrations" in err


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=KINDS)
def test_weights_that_do_not_fit_are_told_with_a_hint(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", full)
    with pytest.raises(DeepThinkError, match=f"model pocket: {told}"):
        load_model()


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=KINDS)
def test_a_model_is_not_refused_for_memory_that_is_missing(
    error: Exception, told: str, llama: BatchedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(LanguageModel, "inputs", full)
    with pytest.raises(type(error)):
        check_plain_pass(llama.model, (5, 6, 7), (8, 9))


def test_other_errors_are_not_taken_for_missing_memory() -> None:
    assert ran_out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not ran_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not ran_out_of_memory(OSError(errno.ENOENT, "no such file"))
    assert not ran_out_of_memory(ValueError("a text about running out of memory"))
