"""Rows of any lengths attend to themselves in one call, by a kernel of GPUs that a stand-in computes here by hand."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from conftest import Loaded, read
from gpu_stand_ins import varlen_by_hand
from helpers.families import WINDOWED, write_model
from queries import DEMOS, QUERIES, assert_close
from torch import Tensor
from torch.nn.attention import varlen

from deepthink_cli import load_model, score
from deepthink_cli.engine import attention, kernels, own
from deepthink_cli.engine.base import Reading
from deepthink_cli.engine.kernels import Attention
from deepthink_cli.engine.packing import blocks, tree
from deepthink_cli.engine.probe import try_packed
from deepthink_cli.model.tokens import TokenizedQuery
from launches import CANDIDATES, plain, scoring

Models = Callable[[str], Path]
MOST = 90  # operations that a pass may start in a layer of a Llama


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every layer without a softcap takes rows of any lengths; whether each call is causal."""
    found: list[bool] = []

    def counted(*given: Any, **named: Any) -> tuple[Tensor, Tensor]:
        found.append(named["window_size"] == (-1, 0))
        return varlen_by_hand(*given, **named)

    monkeypatch.setattr(varlen, "varlen_attn", counted)
    monkeypatch.setattr(attention, "takes_any_length", lambda _, __, ___, softcap: softcap is None)
    return found


def test_the_stand_in_is_called_as_the_kernel_is() -> None:
    assert list(signature(varlen_by_hand).parameters) == list(signature(varlen.varlen_attn).parameters)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_oss"])
def test_scores_and_readings_are_those_of_padded_rows(
    family: str, loaded: Loaded, monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    engine = loaded(family)
    calls.clear()  # of the probe
    with monkeypatch.context() as without:
        without.setattr(attention, "takes_any_length", lambda *_: False)
        memory = read(engine, DEMOS)
        readings = [Reading(DEMOS, memory, len(DEMOS)), Reading(DEMOS[::-1]), Reading(DEMOS[:5], memory, 40)]
        expected, presents = score(engine, memory, QUERIES), engine.read(readings)
    assert calls == []
    for present, right in zip(engine.read(readings), presents, strict=True):
        assert_close(present, right)
    calls.clear()
    for scores, right in zip(score(engine, memory, QUERIES), expected, strict=True):
        assert scores.sums == pytest.approx(right.sums, abs=1e-4)
    # One call a layer, whatever the lengths, but not where a window hides tokens of a row from others.
    assert calls.count(True) == (1 if family == "gpt_oss" else len(memory.keys))


@pytest.mark.parametrize("family", ["mistral", "gemma2", "llama4_text"])
def test_layers_with_windows_are_as_before(family: str, tmp_path: Path, calls: list[bool]) -> None:
    engine = load_model(str(write_model(tmp_path / family, family, **WINDOWED[family])))
    queries = [TokenizedQuery(tuple(range(50, 50 + n)), ((9,), (10, 11), (10, 12))) for n in (1, 3, 20)]
    memory = read(engine, DEMOS)
    found = score(engine, memory, queries)
    with pytest.MonkeyPatch.context() as without:
        without.setattr(attention, "takes_any_length", lambda *_: False)
        expected = score(engine, memory, queries)
    for scores, right in zip(found, expected, strict=True):
        assert scores.sums == pytest.approx(right.sums, abs=1e-4)
    assert bool(calls) == (family != "gemma2")  # it has a softcap


def test_branches_that_share_too_many_keys_are_padded(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    engine, memory = loaded("llama"), read(loaded("llama"), DEMOS)
    calls.clear()
    many = [TokenizedQuery(tuple(range(50, 90)), tuple((n, n) for n in range(100, 140)))]
    few = score(engine, memory, many)
    assert True not in calls
    monkeypatch.setattr(own, "_MOST_KEYS", 100)
    assert score(engine, memory, many)[0].sums == pytest.approx(few[0].sums, abs=1e-4)
    assert True in calls


@pytest.mark.usefixtures("calls")
def test_a_kernel_that_computes_something_else_is_not_used(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Attention.over_lengths
    monkeypatch.setattr(kernels, "has_varlen", lambda _: True)
    monkeypatch.setattr("deepthink_cli.engine.probe.has_varlen", lambda _: True)
    engine = load_model(str(models("llama")), dtype="bfloat16")
    assert try_packed(engine.model).any_length

    def shifted(*given: Any, **named: Any) -> tuple[Tensor, Tensor]:
        out, lse = whole(*given, **named)
        return out, lse.roll(1, 1)

    monkeypatch.setattr(Attention, "over_lengths", shifted)
    verdict = try_packed(engine.model)
    assert verdict.reason is None
    assert not verdict.any_length


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES)
def test_on_a_gpu_a_layer_starts_as_many_operations_whatever_the_lengths(
    candidates: tuple[tuple[int, ...], ...],
) -> None:
    one, many = (scoring("meta", lengths, candidates) for lengths in ([26] * 64, range(1, 65)))
    assert one.in_layer == many.in_layer <= MOST
    assert one.copies == many.copies == 2  # what is scored, and how its rows are cut


def test_on_a_processor_a_layer_starts_few_operations_for_each_block_of_similar_lengths() -> None:
    one, many = (scoring("cpu", lengths, ((5,), (6,))) for lengths in ([26] * 64, range(1, 65)))
    assert plain().in_layer < one.in_layer <= MOST
    found = blocks([tree(0, TokenizedQuery((5,) * length, ((5,), (6,)))) for length in range(64, 0, -1)])
    assert len(found) < 64 / 4
    assert many.in_layer - one.in_layer < 20 * len(found)
