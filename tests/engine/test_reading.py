"""Readings that share a pass: the same keys and values as each alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from families import FAMILIES

from deepthink_cli import DemonstrationSet, Memory, load_model, think, tokenize_demonstrations
from deepthink_cli.engine import choice as engine
from deepthink_cli.engine.choice import engine_of, read_each
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.reading import Reading, read_packed
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.provenance import Method
from deepthink_cli.thinking import think_each

LONG, SHORT = tuple(range(3, 40)), tuple(range(60, 65))


def assert_alike(found: Memory, expected: Memory) -> None:
    pairs = [*zip(found.keys, expected.keys, strict=True), *zip(found.values, expected.values, strict=True)]
    for one, two in pairs:
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_reads_together_as_it_reads_alone(family: str, models: Callable[[str], Path]) -> None:
    model = load_model(str(models(family)))
    first = model.read(LONG)
    readings = [Reading(LONG), Reading(SHORT, first, len(LONG)), Reading(LONG, first, len(LONG)), Reading(SHORT)]
    alone = [model.read(one.token_ids, one.history, one.start) for one in readings]
    for budget in (1, 45, 4096):  # one a pass, two a pass, all together
        for found, expected in zip(read_each(replace(model, batch_tokens=budget), readings), alone, strict=True):
            assert_alike(found, expected)


def test_gates_thought_in_step_think_as_each_alone(llama: LanguageModel, reviews: DemonstrationSet) -> None:
    read = tokenize_demonstrations(llama.tokenizer, reviews)
    shorter = tokenize_demonstrations(llama.tokenizer, replace(reviews, examples=reviews.examples[:2]))
    given = [(read, Method(4, 0.1)), (read, Method(4, 0.01, 0.9)), (shorter, Method(4, 0.1, 0.0, "restarted"))]
    *_, last = think_each(llama, given)
    for found, (read, method) in zip(last, given, strict=True):
        *_, expected = think(llama, read, 4, method.eta, method.momentum, method.positions)  # type: ignore[arg-type]
        assert (found.provenance, found.iteration) == (expected.provenance, 4)
        assert_alike(found, expected)


def test_gates_share_the_first_reading_and_every_pass(
    llama: LanguageModel, reviews: DemonstrationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[list[int]] = []

    def counted(model: LanguageModel, readings: Sequence[Reading]) -> list[Memory]:
        passed.append([len(one) for one in readings])
        return read_packed(model, readings)

    monkeypatch.setattr(engine, "read_packed", counted)
    read = tokenize_demonstrations(llama.tokenizer, reviews)
    length = len(read.token_ids)
    list(think_each(llama, [(read, Method(3, eta)) for eta in (0.001, 0.01, 0.1)]))
    assert passed[-3:] == [[length], [length] * 3, [length] * 3]


def test_the_first_to_end_ends_all(llama: LanguageModel, reviews: DemonstrationSet) -> None:
    read = tokenize_demonstrations(llama.tokenizer, reviews)
    assert len(list(think_each(llama, [(read, Method(2, 0.1)), (read, Method(5, 0.1))]))) == 2


def test_a_reading_that_does_not_fit_the_device_is_split(llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model, most = replace(llama, batch_tokens=4096), 0

    def small(model: LanguageModel, readings: Sequence[Reading]) -> list[Memory]:
        if len(readings) > most:
            raise torch.OutOfMemoryError
        return read_packed(model, readings)

    engine_of(model)
    monkeypatch.setattr(engine, "read_packed", small)
    with pytest.raises(torch.OutOfMemoryError):
        read_each(model, [Reading(SHORT)])
    most = 1
    for found, expected in zip(read_each(model, [Reading(SHORT), Reading(LONG)]), (SHORT, LONG), strict=True):
        assert_alike(found, model.read(expected))


def test_readings_keep_no_more_than_their_own_tokens(llama: LanguageModel) -> None:
    for found in read_packed(llama, [Reading(SHORT), Reading(LONG)]):
        assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in (*found.keys, *found.values))


def test_a_reading_too_long_and_one_that_is_not_finite_are_refused(llama: LanguageModel) -> None:
    with pytest.raises(InputError, match="too long: 600 tokens"):
        read_each(llama, [Reading(SHORT), Reading((5,) * 600)])
    broken = replace(
        llama.read(LONG), values=tuple(torch.full_like(one, float("inf")) for one in llama.read(LONG).values)
    )
    with pytest.raises(DeepThinkError, match="NaN or infinite"):
        read_each(llama, [Reading(LONG, broken, len(LONG))])
