"""A correction is of the options of scoring that it was estimated with; what has no meaning with them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured

from deepthink_cli.cli.main import run

ROWS = [
    {"text": f"{word} film {n}", "label": label} for n in range(12) for word, label in (("good", "p"), ("bad", "n"))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory, a composed one, and rows."""
    made = tmp_path_factory.mktemp("stored")
    demos, _ = write_rows(made / "demos.jsonl", ROWS[:4]), write_rows(made / "rows.jsonl", ROWS[4:])
    for more in ("-o m.safetensors", "-o composed.safetensors --technique composed"):
        *words, name = f"think {demos} -m pocket -T 1 -q --technique deep-thinking".split(), more
        typed = [*words[0], *name.replace("-o ", f"-o {made}/").split()]
        assert run(typed) == 0
    return made


def refused(capsys: Captured, line: str) -> str:
    capsys.readouterr()
    assert run(line.split()) == 2
    return capsys.readouterr().err


def test_all_options_that_differ_are_named_with_a_command_that_helps(folder: Path, capsys: Captured) -> None:
    memory, rows = folder / "end.safetensors", folder / "rows.jsonl"
    assert run(f"calibrate {folder}/m.safetensors -o {memory} --score end --reread 2 -q".split()) == 0
    told = refused(capsys, f"predict {memory} {rows} --score mean")
    assert "is of --reread 2 and of --score end; give the same" in told
    assert f"deepthink calibrate {memory} --score mean, or use --calibrate none" in told
    assert run(f"calibrate {memory} --score mean -q".split()) == 0
    assert run(f"predict {memory} {rows} --score mean -q".split()) == 0


def test_options_of_scores_are_refused_where_nothing_is_scored(folder: Path, capsys: Captured) -> None:
    told = refused(capsys, f"calibrate {folder}/m.safetensors --calibrate none --score mean")
    assert told.startswith("deepthink: --score mean: has no meaning")


@pytest.mark.plugins
def test_memories_whose_corrections_are_of_other_parts_are_compared_without_labels(
    folder: Path, capsys: Captured
) -> None:
    nearest = folder / "nearest.safetensors"
    assert run(f"calibrate {folder}/composed.safetensors -o {nearest} --nearest 2 -q".split()) == 0
    told = refused(capsys, f"diff {nearest} {folder}/m.safetensors {folder}/rows.jsonl")
    assert told.startswith("deepthink: labels: A and B store corrections of other options of scoring")


def test_a_study_refuses_what_is_of_composed_memories_alone(folder: Path, capsys: Captured) -> None:
    study = folder / "study.yaml"
    study.write_text("models: [pocket]\ntasks: [sst2]\nscoring: {nearest: 2}\n")
    assert "scoring nearest=2: attends to parts" in refused(capsys, f"study run {study} -o {folder}/out")
