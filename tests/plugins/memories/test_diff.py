"""What differs between two memories: provenance, keys and values, and the labels of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import Models

from deepthink_cli import DemonstrationSet, Example, Gate, Memory, Method, save_memory, think, tokenize_demonstrations
from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.plugins.memories.compared_rows import is_labelled
from deepthink_cli.plugins.memories.diff import diff, tensor_changes
from deepthink_cli.plugins.memories.quantize import quantize, save_quantized
from deepthink_cli.tasks.rows import rows_of_file


def memory(*layers: list[list[float]]) -> Memory:
    """A memory of one head whose keys are these numbers (L, size), its values all one."""
    keys = tuple(torch.tensor([layer]) for layer in layers)
    return Memory(keys, tuple(torch.ones_like(each) for each in keys))


@pytest.fixture
def path(llama: Engine, reviews: DemonstrationSet, tmp_path: Path) -> Path:
    readings = think(llama, tokenize_demonstrations(llama.tokenizer, reviews), Method(3, Gate(0.5)))
    save_memory(list(readings), tmp_path / "mem.safetensors")
    return tmp_path / "mem.safetensors"


def test_changes_are_relative_by_layer_and_by_token() -> None:
    before, after = (
        memory([[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 0.0]]),
        memory([[3, 0], [0, 7]], [[1, 0], [0, 0]]),
    )
    changes, reasons = tensor_changes(before, after)
    assert reasons == []
    assert changes.whole.keys == pytest.approx(3 / math.sqrt(26))
    assert (changes.layers[0].keys, changes.layers[1].keys) == (pytest.approx(0.6), 0.0)
    assert (changes.tokens[0].keys, changes.tokens[1].keys) == (0.0, pytest.approx(0.75))
    assert {change.values for change in changes.layers.values()} == {0.0}


def test_a_change_from_zero_has_no_relative_size() -> None:
    changes, _ = tensor_changes(memory([[0.0]], [[1.0]]), memory([[2.0]], [[1.0]]))
    assert changes.layers[0].keys is None
    assert changes.layers[0].size == math.inf


def test_layers_of_equal_shapes_are_compared_and_the_others_named() -> None:
    changes, reasons = tensor_changes(memory([[1.0, 2.0]], [[1.0, 2.0]]), memory([[1.0, 2.0]], [[1.0]], [[1.0]]))
    assert list(changes.layers) == [0]
    assert reasons == [
        "A has 2 layers and B 3: layers from 2 on have no counterpart",
        "1 layers have other shapes, as the keys of layer 1: [1, 1, 2] and [1, 1, 1]",
    ]


def test_memories_of_other_lengths_are_not_compared() -> None:
    changes, reasons = tensor_changes(memory([[1.0]]), memory([[1.0], [2.0]]))
    assert changes is None
    assert reasons == ["A has 1 tokens and B 2: no keys and values have equal shapes"]


def test_two_iterations_of_a_file_differ_in_their_number_and_by_what_thinking_changed(path: Path) -> None:
    result = diff(open_memory(path, 1), open_memory(path, 2))
    drift = open_memory(path, 2).memories()[0].drift[0]
    assert result.provenance == {"iteration": ("1 of 1, 2, 3", "2 of 1, 2, 3")}
    assert [change.keys for change in result.tensors.layers.values()] == pytest.approx(drift.keys)
    assert [change.values for change in result.tensors.layers.values()] == pytest.approx(drift.values)
    assert result.demonstrations.same_order
    assert result.not_compared == ()


def test_tokens_are_shown_with_the_texts_of_the_models_tokenizer(path: Path) -> None:
    tokens = diff(open_memory(path, 1), open_memory(path, 2)).tokens
    assert tokens is not None
    assert "a warm and funny film" in "".join(tokens)


def of_model(path: Path, model: str) -> Path:
    """A copy of a memory that names another model."""
    (first,) = open_memory(path).memories()
    elsewhere = replace(first.provenance, model=replace(first.provenance.model, id=model))
    save_memory(replace(first, provenance=elsewhere), path.with_name("moved.safetensors"))
    return path.with_name("moved.safetensors")


@pytest.mark.parametrize("is_local", [True, False])
def test_without_the_tokenizer_tokens_have_no_texts_and_a_note_says_why(
    path: Path, tmp_path: Path, is_local: bool
) -> None:
    model = str(tmp_path / "gone") if is_local else "no-such-owner/no-such-model"
    moved = of_model(path, model)
    notes: list[str] = []
    result = diff(moved, path, tell=lambda event: notes.append(event.text))  # type: ignore[union-attr]
    assert result.tokens is None
    assert notes[0].startswith(f"tokens are shown by their ids: {'model ' if is_local else ''}{model}")
    assert "--offline" not in notes[0]
    assert result.tensors is not None


def test_a_memory_whose_model_is_not_cached_is_quantized(path: Path, tmp_path: Path) -> None:
    made = quantize(of_model(path, "no-such-owner/no-such-model"), "int8", tmp_path / "small.safetensors")
    assert made.change.tensors is not None


def test_the_same_rows_are_labelled_with_both(path: Path, demos: Path) -> None:
    rows = partial(rows_of_file, path=demos)
    result = diff(open_memory(path, 1), open_memory(path, 3), rows)
    changes = result.labels.changes
    assert (changes.n, changes.labelled is not None) == (4, True)
    same = diff(path, path, rows).labels
    assert (same.changes.rows, same.changes.largest) == ((), 0.0)


def test_a_quantized_memory_is_compared_with_its_source(path: Path, tmp_path: Path) -> None:
    small = save_quantized(open_memory(path).source.header, 8, tmp_path / "small.safetensors")  # type: ignore[union-attr]
    result = diff(path, small.path)
    assert list(result.provenance) == ["quantized"]
    assert 0 < (result.tensors.whole.keys or 0) < 0.01


def test_labels_of_memories_of_two_models_are_not_compared(
    path: Path,
    models: Models,
    reviews: DemonstrationSet,
    loaded: Callable[[str], Engine],
    demos: Path,
    tmp_path: Path,
) -> None:
    other = loaded("gpt2")
    save_memory(next(think(other, tokenize_demonstrations(other.tokenizer, reviews))), tmp_path / "other.safetensors")
    result = diff(path, tmp_path / "other.safetensors", partial(rows_of_file, path=demos))
    assert result.labels is None
    assert result.not_compared[-1].startswith("labels: A and B were made by different models: architecture and ")
    assert "model" in result.provenance


def test_demonstrations_are_counted_by_who_has_them(llama: Engine, path: Path, tmp_path: Path) -> None:
    examples = [Example("far too long", "negative"), Example("a new one", "positive")]
    given = DemonstrationSet.of(examples, "Review: {review}\nSentiment: {sentiment}", ["positive", "negative"])
    save_memory(next(think(llama, tokenize_demonstrations(llama.tokenizer, given))), tmp_path / "new.safetensors")
    shared = diff(path, tmp_path / "new.safetensors").demonstrations
    assert (shared.both, shared.only_before, shared.only_after, shared.same_order) == (1, 3, 1, False)


def test_rows_are_labelled_if_the_first_one_has_the_label_field(path: Path, demos: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.jsonl").write_text('{"review": "fine"}\n')
    (tmp_path / "lines.txt").write_text("fine\n")
    opened = open_memory(path)
    assert is_labelled(opened, RowSource.of(demos))
    assert not is_labelled(opened, RowSource.of(tmp_path / "plain.jsonl"))
    assert not is_labelled(opened, RowSource.of(tmp_path / "lines.txt"))
