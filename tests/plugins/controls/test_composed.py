"""Demonstrations that are read alone, and files of them that are made one memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import REVIEWS, write_rows
from engine.queries import tensors
from helpers.families import write_model
from helpers.said import Captured, refused
from transformers import DynamicCache

from deepthink_cli import (
    Chat,
    DemonstrationSet,
    Gate,
    Memory,
    Method,
    Query,
    load_memory,
    load_model,
    save_memory,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.artifact.opening import with_first_reading
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.scoring.likelihood import score
from deepthink_cli.techniques.registry import technique_of

ROWS = [{"review": text, "sentiment": label} for text, label in REVIEWS]


def composed(reviews: DemonstrationSet) -> DemonstrationSet:
    return technique_of("composed").change(reviews)


def assert_same(actual: Memory, expected: Memory) -> None:
    for ours, theirs in zip(tensors(actual), tensors(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [PackedEngine, PaddedEngine])
def test_a_composed_memory_is_one_pass_in_which_no_demonstration_sees_another(
    kind: type[PackedEngine], llama: PackedEngine, reviews: DemonstrationSet
) -> None:
    engine = kind(llama.model)
    read = tokenize_demonstrations(engine.tokenizer, composed(reviews))
    numbers = [number for number, length in enumerate(read.parts) for _ in range(length)]
    places = [place for length in read.parts for place in range(length)]
    of_part = torch.tensor(numbers)
    seen = (of_part[:, None] == of_part) & torch.ones(len(places), len(places)).tril().bool()
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        cache = llama.model.network(
            input_ids=torch.tensor([read.token_ids]),
            position_ids=torch.tensor([places]),
            attention_mask=mask[None, None],
            past_key_values=DynamicCache(),
            use_cache=True,
        ).past_key_values
    expected = Memory(tuple(each.keys[0] for each in cache.layers), tuple(each.values[0] for each in cache.layers))
    assert_same(next(think(engine, read)), expected)


@pytest.mark.parametrize("positions", ["continued", "restarted"])
def test_every_part_is_thought_about_as_it_is_alone(
    positions: str, llama: PackedEngine, reviews: DemonstrationSet
) -> None:
    method = Method(3, Gate(0.3), positions)  # type: ignore[arg-type]
    *_, whole = think(llama, tokenize_demonstrations(llama.tokenizer, composed(reviews)), method)
    alone = []
    for example in reviews.examples:
        *_, part = think(llama, tokenize_demonstrations(llama.tokenizer, replace(reviews, examples=(example,))), method)
        alone.append(part)
    assert_same(whole, alone[0].followed_by(*alone[1:]))


def test_the_order_of_composed_demonstrations_changes_no_score(llama: PackedEngine, reviews: DemonstrationSet) -> None:
    scores = []
    for examples in (reviews.examples, reviews.examples[::-1]):
        read = tokenize_demonstrations(llama.tokenizer, composed(replace(reviews, examples=examples)))
        *_, memory = think(llama, read, Method(2, Gate(0.3)))
        queries = tokenize_queries(llama.tokenizer, read, [Query("A slow start.", reviews.labels)])
        scores.append(score(llama, memory, queries)[0].sums)
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_the_first_reading_of_a_stored_composed_memory_is_read_apart_again(
    llama: PackedEngine, reviews: DemonstrationSet, tmp_path: Path
) -> None:
    first, last = think(llama, tokenize_demonstrations(llama.tokenizer, composed(reviews)), Method(2, Gate(0.3)))
    assert last.provenance is not None
    recorded = replace(last.provenance, technique=technique_of("composed").recorded())
    save_memory(replace(last, provenance=recorded), tmp_path / "mem.safetensors")
    again, _ = with_first_reading(llama, [load_memory(tmp_path / "mem.safetensors")])
    assert_same(again, first)


def test_turns_of_a_conversation_are_not_composed(reviews: DemonstrationSet) -> None:
    with pytest.raises(InputError, match="turns of a conversation cannot be read alone"):
        composed(replace(reviews, chat=Chat()))


@pytest.mark.parametrize(("family", "message"), [("mistral", "(window of 8) with"), ("bloom", "earlier tokens")])
def test_a_model_whose_attention_depends_on_places_in_the_memory_is_refused(
    family: str, message: str, tmp_path: Path, capsys: Captured
) -> None:
    changes = {"sliding_window": 8} if family == "mistral" else {}
    model, rows = write_model(tmp_path / family, family, **changes), write_rows(tmp_path / "rows.jsonl", ROWS)
    words = ["think", str(rows), "-m", str(model), "--technique", "composed", "-o", str(tmp_path / "m.safetensors")]
    assert message in refused(capsys, *words)


@pytest.mark.parametrize("family", ["mistral", "gemma3_text"])
def test_nothing_of_a_composed_memory_is_outside_a_window(
    family: str, reviews: DemonstrationSet, tmp_path: Path
) -> None:
    model = write_model(tmp_path / family, family)
    engine, wide = load_model(str(model)), load_model(str(write_model(tmp_path / "wide", family, sliding_window=4096)))
    read = tokenize_demonstrations(engine.tokenizer, composed(reviews))
    memory, same = (next(think(each, read)) for each in (engine, wide))
    window, length = 256, len(read.token_ids)
    words = ["slow", *("slow " * (count - 1) + "slow" for count in (100, 200))]
    queries = tokenize_queries(engine.tokenizer, read, [Query(word, reviews.labels) for word in words])
    fitting = [query for query in queries if length + query.longest <= window]
    assert 0 < len(fitting) < len(queries)
    for one, other in zip(score(engine, memory, fitting), score(wide, same, fitting), strict=True):
        assert one.sums == pytest.approx(other.sums, abs=1e-5)
    with pytest.raises(InputError, match="window of 256"):
        score(engine, memory, queries)
