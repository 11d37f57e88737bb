"""A corpus of malformed files: each gets its line, exit 2, no traceback, and nothing is written.

`corpus/expected.tsv` says of every file which lines must be named (`-`: the file alone) and what must be said.
`corpus/generate.py` wrote the Parquet files, and those too large to type.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from conftest import REVIEWS, write_rows

from deepthink_cli.cli import main

CORPUS = Path(__file__).parent.parent / "corpus"
DEMOS, MEMORY, OUT = "given.jsonl", "given.safetensors", "out.jsonl"
BEFORE = "what was there before"
PARSER = typer.main.get_command(main.app)  # otherwise built anew for every file, which takes longest


@dataclass(frozen=True)
class Case:
    """A file of the corpus, the lines that must be named, and the words that must be said of each."""

    file: str
    lines: list[str]
    words: str

    @property
    def kind(self) -> str:
        return self.file.split("/")[0]

    @property
    def places(self) -> list[str]:
        name = Path(self.file).name
        return [name if line == "-" else f"{name}:{line}" for line in self.lines]


def cases() -> list[Case]:
    listed = [line.split("\t") for line in (CORPUS / "expected.tsv").read_text(encoding="utf-8").splitlines()]
    return [Case(file, lines.split(","), words) for file, lines, words in listed]


def command(case: Case) -> list[str]:
    """The command that reads the file."""
    name = Path(case.file).name
    return {
        "demonstrations": ["think", name, "-o", OUT],
        "inputs": ["predict", MEMORY, name, "-o", OUT],
        "tasks": ["tasks", "validate", name],
        "configs": ["think", DEMOS, "--config", name],
    }[case.kind]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, models: Callable[[str], Path]) -> Path:
    """A folder with demonstrations, a memory of them, and files that must stay as they are."""
    folder = tmp_path_factory.mktemp("corpus")
    demos = write_rows(folder / DEMOS, [{"review": text, "sentiment": label} for text, label in REVIEWS])
    memory = ["-m", str(models("llama")), "-T", "1", "-o", str(folder / MEMORY), "-q"]
    assert main.run(["think", str(demos), *memory]) == 0
    for name in (OUT, "memory.safetensors"):
        (folder / name).write_text(BEFORE)
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.file)
def test_a_malformed_file_is_refused_by_its_line(
    case: Case, given: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(given)
    monkeypatch.setattr(main, "app", PARSER)
    shutil.copyfile(CORPUS / case.file, Path(case.file).name)
    before = contents(given)
    try:
        code = main.run(command(case))
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), err
        assert contents(given) == before
    finally:
        (given / Path(case.file).name).unlink()
    said = err.removesuffix("\n").split("\n")
    assert all(line.startswith("deepthink: ") for line in said)
    assert "Traceback" not in err
    for place in case.places:
        assert any(f"{place}: " in line and case.words in line for line in said), err


def test_the_corpus_holds_at_least_two_hundred_files_and_all_are_listed() -> None:
    listed = [case.file for case in cases()]
    there = {str(path.relative_to(CORPUS)) for path in CORPUS.glob("*/*")}
    assert len(listed) == len(set(listed)) >= 200
    assert set(listed) == there
    assert {case.kind for case in cases()} == {"demonstrations", "inputs", "tasks", "configs"}
