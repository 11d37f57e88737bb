"""`deepthink compose`: files of memories as one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import REVIEWS, TEMPLATE, write_rows
from helpers.said import Captured, json_of

from deepthink_cli import DemonstrationSet, load_memory, predict, save_memory, think, tokenize_demonstrations
from deepthink_cli.cli.main import run
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.memories.compose import compose
from deepthink_cli.scoring.scoring import Scoring

ROWS = [{"review": text, "sentiment": label} for text, label in REVIEWS]


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    """Memories of the first two reviews and of the others, made on the command line, and of all as one."""
    made = []
    for name, rows in (("a", ROWS[:2]), ("b", ROWS[2:]), ("whole", ROWS)):
        given, memory = write_rows(tmp_path / f"{name}.jsonl", rows), tmp_path / f"{name}.safetensors"
        words = ["think", str(given), "-T", "2", "--keep", "all", "--technique", "composed", "--template", TEMPLATE]
        assert run([*words, "--labels", "positive,negative", "-o", str(memory), "-q"]) == 0
        made.append(str(memory))
    return made


def test_composed_files_are_the_memory_of_all_their_demonstrations(
    parts: list[str], tmp_path: Path, capsys: Captured
) -> None:
    first, second, whole = parts
    told = json_of(capsys, "compose", first, second, "-o", tmp_path / "c.safetensors", "--json")
    joined, expected = load_memory(tmp_path / "c.safetensors"), load_memory(whole)
    assert joined.provenance == expected.provenance
    assert tuple(told["parts"]) == joined.provenance.demonstrations.parts  # type: ignore[union-attr]
    for ours, theirs in zip((*joined.keys, *joined.values), (*expected.keys, *expected.values), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    rows = write_rows(tmp_path / "rows.jsonl", ROWS)
    assert len(json_of(capsys, "eval", tmp_path / "c.safetensors", rows, "--json")["results"]) == 2  # T = 1 and 2


def test_what_is_of_one_part_is_named_when_it_is_left_out(parts: list[str], tmp_path: Path, capsys: Captured) -> None:
    first, second, _ = parts
    assert run(["calibrate", first, "-q"]) == 0
    assert run(["calibrate", second, "--calibrate", "domain", "-q"]) == 0
    capsys.readouterr()
    assert run(["compose", first, second, "-o", str(tmp_path / "c.safetensors")]) == 0
    left_out = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert left_out == [
        f"left out, since of one part: the {what}; store it again with deepthink calibrate"
        for what in (
            f"contextual correction of {first}",
            f"domain correction of {second}",
        )
    ]
    origin = load_memory(tmp_path / "c.safetensors").provenance
    assert (origin.calibrated, origin.thresholds) == (None, None)


def test_memories_that_do_not_fit_together_are_named(parts: list[str], tmp_path: Path) -> None:
    rows, other = write_rows(tmp_path / "other.jsonl", ROWS), str(tmp_path / "other.safetensors")
    output = tmp_path / "c.safetensors"
    words = ["think", str(rows), "--template", TEMPLATE, "--labels", "positive,negative", "-o", other, "-q"]
    for changed, message in (
        (["-T", "3", "--keep", "all"], "other T, update rule or positions than"),
        (["-T", "2", "--keep", "2"], "other kept iterations than"),
        (["-T", "2", "--keep", "all", "--technique", "repeat-2"], "made by repeat-2"),
    ):
        assert run([*words, *changed]) == 0
        with pytest.raises(InputError, match=f"other.safetensors: {message}"):
            compose([parts[0], other], output)
    with pytest.raises(InputError, match="two memories or more"):
        compose(parts[:1], output)
    assert not output.exists()


def test_thresholds_of_one_part_are_named_when_they_are_left_out(tmp_path: Path, capsys: Captured) -> None:
    labels = [["x", "y"], ["x"], ["y"]]
    given = write_rows(tmp_path / "several.jsonl", [{"text": f"text {n}", "labels": labels[n]} for n in range(3)])
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": f"row {n}", "labels": labels[n % 3]} for n in range(24)])
    memory = str(tmp_path / "several.safetensors")
    assert run(["think", str(given), "-T", "1", "-q", "-o", memory]) == 0
    assert run(["calibrate", memory, str(rows), "-q"]) == 0
    capsys.readouterr()
    assert run(["compose", memory, memory, "-o", str(tmp_path / "c.safetensors")]) == 0
    assert capsys.readouterr().err.count(f"left out, since of one part: the thresholds of {memory}; ") == 2


def test_a_group_that_was_read_together_is_chosen_as_a_whole(
    llama: PackedEngine, reviews: DemonstrationSet, tmp_path: Path
) -> None:
    files = []
    for number, examples in enumerate((reviews.examples[:3], reviews.examples[3:])):
        *_, part = think(llama, tokenize_demonstrations(llama.tokenizer, replace(reviews, examples=examples)))
        save_memory(part, tmp_path / f"{number}.safetensors")
        files.append(tmp_path / f"{number}.safetensors")
    compose(files, tmp_path / "whole.safetensors")
    (found,) = predict(
        llama, load_memory(tmp_path / "whole.safetensors"), ["tender and wise"], scoring=Scoring.of(nearest=1)
    )
    (alone,) = predict(llama, load_memory(files[0]), ["tender and wise"])
    assert (found.attended, found.scores) == ((0,), pytest.approx(alone.scores, abs=1e-4))
