"""The seconds of a command in a process of its own, which the benchmarks show."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Soak

import timed


def test_a_command_is_clocked_from_the_choice_of_its_engine_on(tmp_path: Path, soak: Soak) -> None:
    if not soak.long:
        pytest.skip("long form only: it starts anew")
    reviews = Path(__file__).resolve().parent.parent.parent / "examples" / "reviews" / "demos.jsonl"
    _, cost = timed.measured(["think", str(reviews), "-T", "2", "-q", "-o", str(tmp_path / "mem.safetensors")])
    assert cost.loaded is not None
    assert 0 < cost.passes < cost.loaded < cost.wall
