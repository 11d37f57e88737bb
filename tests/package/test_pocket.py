"""The built-in model: small, loaded like any other, and a reader of its demonstrations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import readings_of

import deepthink_cli
from deepthink_cli import DemonstrationSet, Example, Query, load_model, predict
from deepthink_cli.engine.base import Engine

POCKET = Path(deepthink_cli.__file__).parent / "pocket"
REVIEWS = Path(__file__).parent.parent.parent / "examples" / "reviews"
TEMPLATE = "Review: {text}\nSentiment: {label}"


def reviews(name: str) -> list[tuple[str, str]]:
    lines = (REVIEWS / name).read_text(encoding="utf-8").splitlines()
    return [(row["review"], row["sentiment"]) for row in map(json.loads, lines)]


@pytest.fixture(scope="module")
def pocket() -> Engine:
    return load_model()


def test_pocket_fits_in_six_megabytes() -> None:
    assert sum(file.stat().st_size for file in POCKET.iterdir()) <= 6e6


@pytest.mark.parametrize(
    "words", [("negative", "positive"), ("positive", "negative"), ("table", "river")], ids=["own", "swapped", "fresh"]
)
def test_pocket_follows_its_demonstrations_whatever_the_words_mean(words: tuple[str, str], pocket: Engine) -> None:
    renamed = dict(zip(("negative", "positive"), words, strict=True))
    given = DemonstrationSet.of([Example(t, renamed[label]) for t, label in reviews("demos.jsonl")], TEMPLATE)
    memory = next(readings_of(pocket, given))
    queries = [Query(text, words, gold=renamed[label]) for text, label in reviews("labelled.jsonl")]
    right = sum(row.label == row.query.gold for row in predict(pocket, memory, queries))
    assert right / len(queries) >= 0.75


def test_scores_in_bfloat16_agree_with_those_in_float32_as_far_as_docs_promise(pocket: Engine) -> None:
    given = DemonstrationSet.of([Example(*row) for row in reviews("demos.jsonl")], TEMPLATE)
    queries = [Query(text, ("negative", "positive")) for text, _ in reviews("labelled.jsonl")]
    exact, rounded = (
        [row.scores for row in predict(engine, memory, queries)]
        for engine in (pocket, load_model(dtype="bfloat16"))
        for memory in readings_of(engine, given)
        if memory.iteration == 5
    )
    pairs = zip(exact, rounded, strict=True)
    differences = [abs(one[label] - other[label]) for one, other in pairs for label in one]
    assert 0 < sum(differences) / len(differences) < 0.1
    assert max(differences) < 0.5
