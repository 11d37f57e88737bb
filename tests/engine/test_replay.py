"""Passes of rounded sizes are recorded and repeated with other rows and other memories: the scores stay the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import Loaded, read
from gpu_stand_ins import record, varlen_in_one
from queries import DEMOS, QUERIES, assert_close
from torch import Tensor
from torch.nn.attention import varlen

from deepthink_cli.engine import attention, replay
from deepthink_cli.engine.base import ScoringPlan
from deepthink_cli.engine.fixed import FixedPass
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.packing import tree
from deepthink_cli.engine.replay import Replays
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery
from launches import repeated

CANDIDATES = {
    "one token": ((5,), (6,), (7,)),
    "branches": ((5, 6), (5, 7, 8), (9, 4), (5, 3, 9)),
}
Recorded = Callable[[str], tuple[PackedEngine, PackedEngine]]


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """A GPU's kernel and its recordings are computed by hand; the results of what is recorded."""
    found: list[list[Tensor]] = []

    def counted(run: Callable[[], list[Tensor]]) -> tuple[Callable[[], object], list[Tensor]]:
        repeat, result = record(run)
        found.append(result)
        return repeat, result

    monkeypatch.setattr(varlen, "varlen_attn", varlen_in_one)
    monkeypatch.setattr(attention, "takes_any_length", lambda *_: True)
    monkeypatch.setattr(replay, "record", counted)
    return found


def pair(loaded: Loaded, family: str) -> tuple[PackedEngine, PackedEngine]:
    """An engine that records its passes, and one that does not."""
    model = loaded(family).model
    recording, plain = PackedEngine(model), PackedEngine(model)
    recording.replays = Replays(model)
    return recording, plain


def queries(seed: int, number: int, answers: tuple[tuple[int, ...], ...]) -> list[TokenizedQuery]:
    drawn = random.Random(seed)
    return [
        TokenizedQuery(tuple(drawn.randrange(20, 200) for _ in range(drawn.randrange(9, 30))), answers)
        for _ in range(number)
    ]


def check(engines: tuple[PackedEngine, PackedEngine], memories: list[Memory], asked: list[TokenizedQuery]) -> None:
    found, expected = (engine.score(memories, engine.plan(asked)) for engine in engines)
    for of_memory, right in zip(found, expected, strict=True):
        assert of_memory == [pytest.approx(row, abs=1e-4) for row in right]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("answers", CANDIDATES.values(), ids=CANDIDATES)
def test_repeated_passes_score_other_rows_as_passes_that_run(
    family: str, answers: tuple[tuple[int, ...], ...], loaded: Loaded, recordings: list[list[Tensor]]
) -> None:
    engines, memory = pair(loaded, family), read(loaded(family), DEMOS)
    for seed in range(8):
        check(engines, [memory], queries(seed, 24, answers))
    assert engines[0].replays is not None
    assert engines[0].replays.failure is None
    assert 1 <= len(recordings) <= 4


def test_a_recording_serves_all_memories_of_one_length(loaded: Loaded, recordings: list[list[Tensor]]) -> None:
    engines, first = pair(loaded, "llama"), read(loaded("llama"), DEMOS)
    second, shorter = read(loaded("llama"), DEMOS, first, len(DEMOS)), read(loaded("llama"), DEMOS[:20])
    rows = queries(0, 24, CANDIDATES["one token"])
    for memories in ([first], [first, second], [second, first]):
        check(engines, memories, rows)
    assert len(recordings) == 1
    for memories in ([shorter], [shorter, first], [first.followed_by(shorter)]):
        check(engines, memories, rows)
    assert len(recordings) == 2


def test_a_memory_that_shares_its_first_tensors_with_another_is_copied(
    loaded: Loaded, recordings: list[list[Tensor]]
) -> None:
    engines, first = pair(loaded, "llama"), read(loaded("llama"), DEMOS)
    second = replace(first, values=(first.values[0], *(values * 0.5 for values in first.values[1:])))
    rows = queries(0, 24, CANDIDATES["one token"])
    for memory in (first, first, second, first):
        check(engines, [memory], rows)
    assert len(recordings) == 1


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("start", [0, len(DEMOS)])
def test_repeated_readings_after_other_histories_are_as_readings_that_run(
    family: str, start: int, loaded: Loaded, recordings: list[list[Tensor]]
) -> None:
    recording, plain = pair(loaded, family)
    history = read(plain, DEMOS)
    for ids in (DEMOS, DEMOS[::-1], DEMOS[3:] + DEMOS[:3], DEMOS):
        expected = read(plain, ids, history, start)
        assert_close(read(recording, ids, history, start), expected)
        history = history.gate(expected, 0.3)
    assert len(recordings) == 1


@pytest.mark.usefixtures("recordings")
def test_rows_that_begin_alike_and_passes_of_one_row_are_repeated(loaded: Loaded) -> None:
    engines, memory = pair(loaded, "llama"), read(loaded("llama"), DEMOS)
    for shift in range(4):
        alike = [TokenizedQuery((40 + shift, 41, *query.prefix), query.answers) for query in QUERIES]
        check(engines, [memory], alike)
        check(engines, [memory], alike[:1])


@pytest.mark.parametrize("broken", ["fails", "differs"])
def test_a_recording_that_fails_or_differs_is_the_last(
    broken: str, loaded: Loaded, recordings: list[list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def bad(run: Callable[[], list[Tensor]]) -> Any:
        calls.append(run)
        if broken == "fails":
            raise RuntimeError("operation not permitted when stream is capturing")
        return (lambda: None), [found + 1 for found in run()]

    monkeypatch.setattr(replay, "record", bad)
    engines, memory = pair(loaded, "llama"), read(loaded("llama"), DEMOS)
    for seed in range(4):
        check(engines, [memory], queries(seed, 24, CANDIDATES["one token"]))
    assert len(calls) == 1
    assert engines[0].replays is not None
    assert engines[0].replays.failure is not None
    assert engines[0].replays.failure in engines[0].description
    assert recordings == []


def test_a_pass_with_windows_is_not_recorded(loaded: Loaded, recordings: list[list[Tensor]]) -> None:
    engines, memory = pair(loaded, "gpt_oss"), read(loaded("gpt_oss"), DEMOS)
    for _ in range(3):
        check(engines, [memory], queries(0, 24, CANDIDATES["one token"]))
    assert recordings == []


def test_sizes_are_rounded_and_nothing_is_asked_of_what_is_added(loaded: Loaded) -> None:
    plan: ScoringPlan = loaded("llama").plan(queries(0, 100, CANDIDATES["branches"]))
    fixed = FixedPass.of([tree(number, query) for number, query in enumerate(plan.queries)])
    fed = sum(map(len, plan.rows))
    assert fed <= fixed.sizes.tokens <= 9 / 8 * fed
    assert len(fixed.requested.asked_N) == 100 * 10
    assert len(fixed.numbers_P) == sum(fixed.sizes.parts())
    assert len({FixedPass.of([tree(0, query)]).sizes for query in plan.queries}) <= 4


@pytest.mark.parametrize("answers", CANDIDATES.values(), ids=CANDIDATES)
def test_beside_a_recording_one_copy_is_started_whatever_the_lengths(answers: tuple[tuple[int, ...], ...]) -> None:
    counts = repeated(range(1, 65), answers)
    assert (counts.copies, counts.started) == (1, 2)  # what is scored; and a view of the result
