"""Queries that attend to the nearest demonstrations of a composed memory (`--nearest`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import readings_of, write_rows
from helpers.inline_workers import labelling_inline
from helpers.said import Captured, rows_of

from deepthink_cli import (
    DemonstrationSet,
    Gate,
    Method,
    Prediction,
    Scoring,
    predict,
    save_memory,
    think,
    tokenize_demonstrations,
)
from deepthink_cli.cli.main import run
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.padded import PaddedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.memories.nearest import bm25
from deepthink_cli.techniques.registry import technique_of

TEXTS = [
    "a film far too long",
    "tender and funny, a wise film",
    "a lifeless mess",
    "nothing of these",
    "a film far too long",
]


def composed(reviews: DemonstrationSet) -> DemonstrationSet:
    return technique_of("composed").change(reviews)


def labelled(engine: PackedEngine, reviews: DemonstrationSet, nearest: int | None = None) -> list[Prediction]:
    memories = list(think(engine, tokenize_demonstrations(engine.tokenizer, composed(reviews)), Method(2, Gate(0.3))))
    return list(predict(engine, memories, TEXTS, scoring=Scoring.of(nearest=nearest)))


@pytest.mark.parametrize("kind", [PackedEngine, PaddedEngine])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_query_has_the_scores_that_it_has_after_its_nearest_demonstrations_composed_without_the_others(
    kind: Callable[..., PackedEngine], count: int, llama: PackedEngine, reviews: DemonstrationSet
) -> None:
    engine = kind(llama.model)
    found = labelled(engine, reviews, count)
    assert len({each.attended for each in found}) > 1
    for place, each in enumerate(found):
        assert len(each.attended) == count
        alone = replace(reviews, examples=tuple(reviews.examples[number] for number in each.attended))
        assert each.scores == pytest.approx(labelled(llama, alone)[place].scores, abs=1e-4)


def test_passes_of_any_size_give_the_same_scores(llama: PackedEngine, reviews: DemonstrationSet) -> None:
    small = PackedEngine(llama.model)
    small.batch_tokens = 12
    for ours, theirs in zip(labelled(small, reviews, 2), labelled(llama, reviews, 2), strict=True):
        assert (ours.attended, ours.scores) == (theirs.attended, pytest.approx(theirs.scores, abs=1e-4))


def test_all_demonstrations_are_as_without_the_option(llama: PackedEngine, reviews: DemonstrationSet) -> None:
    assert labelled(llama, reviews, 4) == labelled(llama, reviews, 9) == labelled(llama, reviews)


def test_the_nearest_demonstrations_share_words_with_a_query_and_the_first_of_equal_ones_is_chosen(
    llama: PackedEngine, reviews: DemonstrationSet
) -> None:
    assert [each.attended for each in labelled(llama, reviews, 1)[::2]][:3] == [(3,), (2,), (1,)]
    same = replace(reviews, examples=(reviews.examples[0],) * 3)
    assert {each.attended for each in labelled(llama, same, 2)} == {(0, 1)}


def test_nearness_is_bm25() -> None:
    texts: Sequence[Sequence[int]] = [(1, 2, 3, 3), (1, 4), (1, 2, 5, 6, 7, 7, 7)]
    for query, row in zip([(3, 2, 9), (1, 7, 7)], bm25(texts, [(3, 2, 9), (1, 7, 7)]), strict=True):
        for text, found in zip(texts, row, strict=True):
            expected = 0.0
            for token in set(query):
                holding = sum(token in each for each in texts)
                frequency = text.count(token)
                weight = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
                length = len(text) / (sum(map(len, texts)) / len(texts))
                expected += weight * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length))
            assert found == pytest.approx(expected, rel=1e-12)


@pytest.fixture
def memory(llama: PackedEngine, reviews: DemonstrationSet, tmp_path: Path) -> Path:
    memories = list(think(llama, tokenize_demonstrations(llama.tokenizer, composed(reviews)), Method(2, Gate(0.3))))
    save_memory(memories, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", [{"review": text, "sentiment": "positive"} for text in TEXTS * 4])


def test_rows_name_the_places_of_their_demonstrations(
    memory: Path,
    rows: Path,
    llama: PackedEngine,
    reviews: DemonstrationSet,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = labelled(llama, reviews, 2) * 4
    found = rows_of(capsys, "predict", memory, rows, "--nearest", 2, "--at", "all", "-q")
    assert [each["nearest"] for each in found] == [list(each.attended) for each in expected]
    assert found[0]["scores"] == pytest.approx(expected[0].scores, abs=1e-4)
    corrected = rows_of(capsys, "predict", memory, rows, "--nearest", 2, "--at", "all", "-q", "--calibrate", "batch")
    assert [each["scores"] for each in corrected] == [each["scores"] for each in found]
    labelling_inline(monkeypatch)
    shared = rows_of(capsys, "predict", memory, rows, "--nearest", 2, "--at", "all", "-q", "--workers", 2)
    assert [each["nearest"] for each in shared] == [each["nearest"] for each in found]


def test_a_bad_row_changes_nothing_of_the_others(memory: Path, rows: Path, capsys: Captured) -> None:
    expected = rows_of(capsys, "predict", memory, rows, "--nearest", 2, "-q")
    with rows.open("a") as file:
        file.write('{"other": 1}\n')
    words = ("--nearest", 2, "--on-error", "skip", "--allow-errors", 1, "-q")
    *found, bad = rows_of(capsys, "predict", memory, rows, *words)
    assert (found, "error" in bad) == (expected, True)


def test_eval_says_how_many_demonstrations_a_query_attends_to(memory: Path, rows: Path, capsys: Captured) -> None:
    (told,) = rows_of(capsys, "eval", memory, rows, "--nearest", 2, "--json", "-q")
    (plain,) = rows_of(capsys, "eval", memory, rows, "--json", "-q")
    assert (told["nearest"], "nearest" in plain) == (2, False)


def test_what_holds_for_the_whole_memory_alone_is_refused_by_name(
    memory: Path, rows: Path, llama: PackedEngine, reviews: DemonstrationSet, tmp_path: Path, capsys: Captured
) -> None:
    with pytest.raises(InputError, match="1 or more"):
        Scoring.of(nearest=0)
    *_, together = readings_of(llama, reviews)
    save_memory(together, tmp_path / "together.safetensors")
    assert run(["predict", str(tmp_path / "together.safetensors"), str(rows), "--nearest", "2"]) == 2
    assert "were read together; make a memory with deepthink think --technique composed" in capsys.readouterr().err
    assert run(["calibrate", str(memory), "--calibrate", "contextual", "-q"]) == 0
    assert run(["predict", str(memory), str(rows), "--nearest", "2"]) == 2
    assert "is without --nearest; give the same, store another with" in capsys.readouterr().err
    assert run(["predict", str(memory), str(rows), "--nearest", "2", "--calibrate", "contextual", "-q"]) == 0
    assert run(["calibrate", str(memory), "--calibrate", "centroid", "--nearest", "2"]) == 2
    assert "compares hidden states after a whole memory" in capsys.readouterr().err
    assert run(["calibrate", str(memory), "--calibrate", "contextual", "--nearest", "2", "-q"]) == 0
    assert run(["predict", str(memory), str(rows), "--nearest", "2", "-q"]) == 0
