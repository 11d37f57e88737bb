"""What commands print by default fits one screen of 80 columns; --details has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured, output

from deepthink_cli.cli.main import run

LINES, COLUMNS = 30, 80
TEXTS = [{"text": f"A film of {n} hours that never ends.", "mood": "dull" if n % 2 else "warm"} for n in range(1, 25)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Path:
    """The current folder, with demonstrations, another file of rows, and a memory with nine iterations."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    write_rows(Path("demos.jsonl"), TEXTS[:16])
    write_rows(Path("rows.jsonl"), TEXTS[16:])
    assert run(["think", "demos.jsonl", "-T", "9", "--eta", "0.1", "--keep", "1,9", "-o", "mem.safetensors", "-q"]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "inspect mem.safetensors",
        pytest.param("diff mem.safetensors mem.safetensors rows.jsonl --at 1,9", marks=pytest.mark.plugins),
        pytest.param("diff mem.safetensors", marks=pytest.mark.plugins),
        "doctor",
        "select demos.jsonl --demos-by random --shots 4 -o chosen.jsonl",
        pytest.param(
            "select demos.jsonl -m pocket --demos-by entropy --shots 4 -o chosen.jsonl", marks=pytest.mark.plugins
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_screen_is_enough(words: str, capsys: Captured) -> None:
    assert run(words.split()) == 0
    out, err = capsys.readouterr()
    lines = [*out.splitlines(), *err.splitlines()]
    assert 3 <= len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.usefixtures("folder")
def test_a_run_and_its_report_fit_a_screen(capsys: Captured) -> None:
    Path("films.yaml").write_text("template: 'Film: {text}\\nMood: {mood}'\nlabels: [dull, warm]\nrows: rows.jsonl\n")
    for words in ("run --task films.yaml -T 2 --seeds 2 --shots 2 -o out", "report out"):
        assert run(words.split()) == 0
        out, err = capsys.readouterr()
        assert len(out.splitlines() + err.splitlines()) <= LINES
        assert [line for line in out.splitlines() + err.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.usefixtures("folder")
def test_inspect_shows_all_with_details(capsys: Captured) -> None:
    brief = output(capsys, "inspect", "mem.safetensors")
    whole = output(capsys, "inspect", "mem.safetensors", "--details")
    for found in ("kv_heads x L x head_dim", "transformers", "  16  A film of 16 hours", "\n2   ", "layer, T = 9"):
        assert found in whole
        assert found not in brief
    assert "... and 6 more" in brief
    assert "--details" in brief
