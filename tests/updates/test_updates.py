"""Update rules: one class and one line in the registry, and a memory records which rule made it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import readings_of
from safetensors import safe_open
from torch import Tensor

from deepthink_cli import (
    DemonstrationSet,
    Gate,
    Memory,
    Method,
    load_memory,
    save_memory,
    think,
    tokenize_demonstrations,
)
from deepthink_cli.artifact.container import KEY
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.updates import RULES, Place, UpdateRule


@dataclass(frozen=True)
class RunningMean(UpdateRule):
    """The mean of all readings so far, from a number of layers on; the layers below keep their first reading."""

    first_layer: int = 0

    def __call__(
        self, history: Tensor, present: Tensor, state: Tensor | None, place: Place
    ) -> tuple[Tensor, Tensor | None]:
        if place.layer < self.first_layer:
            return history, None
        total = present.add_(history if state is None else state)
        return total / place.iteration, total


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule under a name."""
    monkeypatch.setitem(RULES, "mean", RunningMean)


@pytest.fixture
def thought(llama: BatchedEngine, reviews: DemonstrationSet) -> Callable[[Method], list[Memory]]:
    """All memories that a method makes of the reviews."""
    return lambda method: list(readings_of(llama, reviews, method))


def random_memory(seed: int) -> Memory:
    """Two layers of random keys and values."""
    draw = torch.Generator().manual_seed(seed)
    parts = [torch.randn(2, 3, 4, generator=draw) for _ in range(4)]
    return Memory(tuple(parts[:2]), tuple(parts[2:]))


@pytest.mark.parametrize("eta", [0.01, 1.0])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_gate_moves_the_memory_as_equation_4_says(eta: float, momentum: float) -> None:
    memory, state = random_memory(0), ()
    expected = [tensor.double().numpy() for tensor in (*memory.keys, *memory.values)]
    steps = [np.zeros_like(array) for array in expected]
    for seed in (1, 2, 3):
        present = random_memory(seed)
        arrays = [tensor.double().numpy() for tensor in (*present.keys, *present.values)]
        steps = [new - old + momentum * step for new, old, step in zip(arrays, expected, steps, strict=True)]
        expected = [old + eta * step for old, step in zip(expected, steps, strict=True)]
        memory, state = memory.updated(present, Gate(eta, momentum), state)
    for tensor, array in zip((*memory.keys, *memory.values), expected, strict=True):
        np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-5, atol=1e-6)


def test_a_gate_without_momentum_keeps_nothing_between_updates() -> None:
    _, state = random_memory(0).updated(random_memory(1), Gate(0.1))
    assert state == (None,) * 4


def test_the_gate_of_a_memory_leaves_the_present_as_it_is() -> None:
    memory, present = random_memory(0), random_memory(1)
    moved = memory.gate(present, 0.25)
    torch.testing.assert_close(moved.keys[1], 0.25 * random_memory(1).keys[1] + 0.75 * memory.keys[1])
    assert all(map(torch.equal, present.keys, random_memory(1).keys))


def test_a_rule_sees_the_place_of_every_tensor() -> None:
    places: list[Place] = []

    def rule(history: Tensor, present: Tensor, state: Tensor | None, place: Place) -> tuple[Tensor, Tensor | None]:
        places.append(place)
        return present, state

    second, _ = random_memory(0).updated(random_memory(1), rule)
    second.updated(random_memory(2), rule)
    tensors = [(0, "keys"), (1, "keys"), (0, "values"), (1, "values")]
    assert places == [Place(t, layer, 2, part) for t in (2, 3) for layer, part in tensors]


def test_a_rule_gets_back_the_state_of_the_same_tensor_and_none_where_it_kept_none() -> None:
    states: list[Tensor | None] = []

    def rule(history: Tensor, present: Tensor, state: Tensor | None, place: Place) -> tuple[Tensor, Tensor | None]:
        states.append(state)
        return present, history if place.part == "values" else None

    first = random_memory(0)
    second, state = first.updated(random_memory(1), rule)
    second.updated(random_memory(2), rule, state)
    assert states[:6] == [None] * 6
    assert states[6] is first.values[0]
    assert states[7] is first.values[1]


@pytest.mark.usefixtures("registered")
def test_a_memory_records_its_rule_and_brings_it_back(
    thought: Callable[[Method], list[Memory]], tmp_path: Path
) -> None:
    path, method = tmp_path / "mem.safetensors", Method(2, RunningMean(first_layer=1), "restarted")
    memory = thought(method)[-1]
    save_memory(memory, path)
    with safe_open(path, "pt") as file:
        fields = json.loads(file.metadata()[KEY])
    assert fields["update"] == {"name": "mean", "values": {"first_layer": 1}}
    assert (fields["eta"], fields["momentum"]) == (0.0, 0.0)
    loaded = load_memory(path)
    assert loaded.provenance == memory.provenance
    assert loaded.provenance.method == method  # type: ignore[union-attr]


def test_a_memory_whose_rule_is_unknown_here_is_refused_by_name(
    thought: Callable[[Method], list[Memory]], tmp_path: Path
) -> None:
    path = tmp_path / "mem.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RULES, "mean", RunningMean)
        save_memory(thought(Method(2, RunningMean()))[-1], path)
    with pytest.raises(InputError, match=r"update rule 'mean' is unknown here; the known ones are gate"):
        load_memory(path)


@pytest.mark.usefixtures("registered")
def test_a_memory_whose_rule_has_other_parameters_here_is_refused(
    thought: Callable[[Method], list[Memory]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mem.safetensors"
    save_memory(thought(Method(2, RunningMean()))[-1], path)
    monkeypatch.setitem(RULES, "mean", Gate)
    with pytest.raises(InputError, match=r"update rule 'mean': .*first_layer"):
        load_memory(path)


def test_a_rule_that_is_not_registered_thinks_and_is_not_saved(
    thought: Callable[[Method], list[Memory]], tmp_path: Path
) -> None:
    memory = thought(Method(2, RunningMean()))[-1]
    with pytest.raises(InputError, match="RunningMean: not a registered update rule; add it to"):
        save_memory(memory, tmp_path / "mem.safetensors")
    assert not (tmp_path / "mem.safetensors").exists()


@dataclass(frozen=True)
class Returning(UpdateRule):
    """Returns the history as it is, or in another dtype."""

    dtype: str = "float32"

    def __call__(self, history: Tensor, present: Tensor, state: Tensor | None, place: Place) -> tuple[Tensor, None]:
        return history.to(getattr(torch, self.dtype)), None


def test_a_rule_that_returns_another_dtype_is_refused_by_its_name(
    llama: BatchedEngine, reviews: DemonstrationSet
) -> None:
    demonstrations = tokenize_demonstrations(llama.tokenizer, reviews)
    with pytest.raises(DeepThinkError, match=r"Returning: an update rule must return torch\.float32"):
        list(think(llama, demonstrations, Method(2, Returning("float16"))))
