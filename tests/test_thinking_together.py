"""Several memories take their readings together, and each is the one that `think` makes of it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from deepthink_cli import DemonstrationSet, Gate, Memory, Method, think, tokenize_demonstrations
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.thinking import think_together


@pytest.fixture
def demonstrations(llama: PackedEngine, reviews: DemonstrationSet) -> TokenizedDemonstrations:
    return tokenize_demonstrations(llama.tokenizer, reviews)


@pytest.mark.parametrize("kind", [PackedEngine, PaddedEngine])
def test_methods_that_share_passes_think_as_each_alone(
    kind: type[PackedEngine], llama: PackedEngine, reviews: DemonstrationSet, demonstrations: TokenizedDemonstrations
) -> None:
    engine = kind(llama.model)
    shorter = tokenize_demonstrations(engine.tokenizer, replace(reviews, examples=reviews.examples[:2]))
    thoughts = [
        (demonstrations, Method(4, Gate(0.1))),
        (demonstrations, Method(4, Gate(0.01, 0.9))),
        (shorter, Method(4, Gate(0.1), "restarted")),
    ]
    *_, together = think_together(engine, thoughts)
    for memory, thought in zip(together, thoughts, strict=True):
        *_, alone = think(engine, *thought)
        assert (memory.provenance, memory.iteration) == (alone.provenance, 4)
        for actual, expected in zip((*memory.keys, *memory.values), (*alone.keys, *alone.values), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_methods_share_the_first_two_readings_and_every_pass(
    llama: PackedEngine, demonstrations: TokenizedDemonstrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[list[int]] = []
    whole = PackedEngine.read_pass

    def counted(self: PackedEngine, readings: Sequence[Reading]) -> list[Memory]:
        passes.append([len(reading) for reading in readings])
        return whole(self, readings)

    monkeypatch.setattr(PackedEngine, "read_pass", counted)
    length = len(demonstrations.token_ids)
    list(think_together(llama, [(demonstrations, Method(3, Gate(eta))) for eta in (0.001, 0.01, 0.1)]))
    assert passes == [[length], [length], [length] * 3]


def test_the_first_to_end_ends_all(llama: PackedEngine, demonstrations: TokenizedDemonstrations) -> None:
    thoughts = [(demonstrations, Method(2, Gate(0.1))), (demonstrations, Method(5, Gate(0.1)))]
    assert len(list(think_together(llama, thoughts))) == 2


def test_a_list_that_is_emptied_changes_no_later_reading(
    llama: PackedEngine, demonstrations: TokenizedDemonstrations
) -> None:
    thoughts = [(demonstrations, Method(3, Gate(0.1)))]
    *_, kept = think_together(llama, thoughts)
    for memories in think_together(llama, thoughts):
        last = list(memories)
        memories.clear()
    assert all(map(torch.equal, last[0].keys, kept[0].keys))
