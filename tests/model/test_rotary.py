"""Rotary positions of every type: sharing a pass changes no result, and a conversation never changes its factors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import read, write_rows
from engine.queries import plain_scores
from helpers.families import write_model
from helpers.said import Captured, refused
from transformers import AutoConfig

from deepthink_cli import load_model, score
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.tokens import TokenizedQuery

BOUNDARY = 64
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [4.0, 9.0, 16.0, 30.0]}
TYPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": BOUNDARY},
    "llama3": {
        "rope_type": "llama3",
        "factor": 4.0,
        "original_max_position_embeddings": BOUNDARY,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "longrope": LONG,
}
ANSWERS = ((9,), (10, 11))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Random tiny models by their type of rotary positions, each saved once."""
    root = tmp_path_factory.mktemp("rotary")

    def folder(kind: str) -> Path:
        if kind != "longrope":
            changes: dict[str, Any] = {"rope_parameters": {"rope_theta": 100.0, **TYPES[kind]}}
            return write_model(root / kind, "llama", max_position_embeddings=160, **changes)
        changes = {"max_position_embeddings": 512, "original_max_position_embeddings": BOUNDARY, "pad_token_id": 0}
        return write_model(root / kind, "phi3", rope_parameters={"rope_theta": 100.0, **LONG}, **changes)

    return lambda kind: root / kind if (root / kind).exists() else folder(kind)


def tokens(count: int, first: int = 5) -> tuple[int, ...]:
    return tuple(5 + (first + 7 * number) % 250 for number in range(count))


@pytest.mark.parametrize(
    ("kind", "length"), [*((kind, BOUNDARY + 20) for kind in TYPES if kind != "longrope"), ("longrope", 18)]
)
def test_scores_are_those_of_one_plain_pass_whatever_the_company(
    kind: str, length: int, made: Callable[[str], Path]
) -> None:
    engine = load_model(str(made(kind)))
    memory = read(engine, tokens(length))
    queries = [TokenizedQuery(tokens(size, size), ANSWERS) for size in (4, 42, 9)]
    for query, found in zip(queries, score(engine, memory, queries), strict=True):
        assert found.sums == pytest.approx(score(engine, memory, [query])[0].sums, abs=1e-4)
        assert found.sums == pytest.approx(plain_scores(engine, tokens(length), query), abs=1e-4)


def test_a_query_that_needs_the_long_factors_is_refused_by_name(made: Callable[[str], Path]) -> None:
    engine = load_model(str(made("longrope")))
    memory = read(engine, tokens(50))
    fits, crosses = (TokenizedQuery(tokens(size), ANSWERS, f"row {size}") for size in (12, 13))
    assert score(engine, memory, [fits])
    with pytest.raises(InputError, match=r"row 13: too long: 15 tokens after 50 .* holds 64 \(context of 64"):
        score(engine, memory, [fits, crosses])


def test_the_smallest_bound_of_the_layers_is_the_limit() -> None:
    config = AutoConfig.for_model("gemma3_text", head_dim=8)
    layers = {name: {**LONG, "original_max_position_embeddings": most} for name, most in (("a", 64), ("b", 128))}
    config.rope_parameters = {**layers, "c": {"rope_type": "default"}}
    assert limits_of(config).positions == 64


def test_a_row_beyond_the_short_factors_is_named_before_the_weights_are_loaded(
    made: Callable[[str], Path], tmp_path: Path, capsys: Captured
) -> None:
    demos = write_rows(tmp_path / "d.jsonl", [{"q": "a", "a": "x"}, {"q": "b", "a": "y"}])
    inputs = write_rows(tmp_path / "in.jsonl", [{"q": "c"}, {"q": "long " * 60}])
    memory = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "-m", str(made("longrope")), "-T", "1", "-o", str(memory), "-q"]) == 0
    assert "in.jsonl:2: too long" in refused(capsys, "predict", memory, inputs)
