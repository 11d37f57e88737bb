"""A corpus of malformed files: each gets its line, exit 2, no traceback, and nothing is written.

A table in `corpus/` holds groups of cases. A case is made from the `base` of its group: `replace` gives lines by their
number (null removes one), `append` adds lines at the end, and `repeat(TEXT, N)` stands for N times TEXT. Then come the
`line` or lines that must be named (none: the file alone) and the `message`. Under `files` are those that lie beside the
table, because no table can hold them; `corpus/write_parquet.py` wrote the Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import REVIEWS, Models, write_rows
from helpers.said import Captured

from deepthink_cli.cli import main

CORPUS = Path(__file__).parent.parent / "corpus"
KINDS = {"configs": 90, "demonstrations": 139, "inputs": 54, "studies": 62, "tasks": 127}
# What pydantic would say; messages are in the words of this program.
PYDANTIC = r"(Value|Assertion) error|Input should|Field required|String should|Extra inputs|Unexpected keyword|pydantic"
DEMOS, MEMORY, OUT, MADE = "given.jsonl", "given.safetensors", "out.jsonl", "memory.safetensors"
BEFORE = "what was there before"


@dataclass(frozen=True)
class Case:
    """A malformed file, the places that must be named, and the words that must be said of each."""

    kind: str
    name: str
    content: bytes
    places: list[str]
    message: str


def content_of(base: str, case: dict[str, Any]) -> bytes:
    """A base document with the changes of a case."""
    lines = base.splitlines(keepends=True)
    for number, text in case.get("replace", {}).items():
        lines[number - 1] = "" if text is None else ended(text)
    if "append" in case:
        lines.append(ended(case["append"]))
    return re.sub(r"repeat\((.+?), (\d+)\)", lambda m: m[1] * int(m[2]), "".join(lines), flags=re.DOTALL).encode()


def ended(text: str) -> str:
    """A text that ends with a line feed."""
    return text if text.endswith("\n") else f"{text}\n"


def places(name: str, line: int | list[int] | None) -> list[str]:
    """The file, or the file with each line, as messages name them."""
    lines = [line] if isinstance(line, int) else line
    return [name] if lines is None else [f"{name}:{number}" for number in lines]


def cases() -> Iterator[Case]:
    for kind in KINDS:
        for group in yaml.load((CORPUS / f"{kind}.yaml").read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            changed, stored = group.get("cases", {}), group.get("files", {})
            contents = {name: content_of(group.get("base", ""), case) for name, case in changed.items()}
            contents |= {name: (CORPUS / kind / name).read_bytes() for name in stored}
            for name, case in {**changed, **stored}.items():
                yield Case(kind, name, contents[name], places(name, case.get("line")), case.get("message", ""))


CASES = list(cases())


def command(case: Case) -> list[str]:
    """The command that reads the file."""
    return {
        "demonstrations": ["think", case.name, "-o", MADE],
        "inputs": ["predict", MEMORY, case.name, "-o", OUT],
        "studies": ["study", "plan", case.name, "--no-probe"],
        "tasks": ["tasks", case.name],
        "configs": ["think", DEMOS, "--config", case.name],
    }[case.kind]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, models: Models) -> Path:
    """A folder with demonstrations, a memory of them, and files that must stay as they are."""
    folder = tmp_path_factory.mktemp("corpus")
    demos = write_rows(folder / DEMOS, [{"review": text, "sentiment": label} for text, label in REVIEWS])
    memory = ["-m", str(models("llama")), "-T", "1", "-o", str(folder / MEMORY), "-q"]
    assert main.run(["think", str(demos), *memory]) == 0
    (folder / OUT).write_text(BEFORE)
    (folder / MADE).write_bytes((folder / MEMORY).read_bytes())
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.plugins
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}/{case.name}")
def test_a_malformed_file_is_refused_by_its_line(
    case: Case, given: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(given)
    Path(case.name).write_bytes(case.content)
    before = contents(given)
    try:
        code = main.run(command(case))
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), err
        assert contents(given) == before
    finally:
        (given / case.name).unlink()
    said = err.removesuffix("\n").split("\n")
    assert all(line.startswith("deepthink: ") for line in said)
    assert not re.search(PYDANTIC, err)
    assert "Traceback" not in err
    for place in case.places:
        assert any(f"{place}: " in line and case.message in line for line in said), err


def test_no_case_is_lost_and_every_stored_file_is_listed() -> None:
    named = {(case.kind, case.name) for case in CASES}
    assert len(named) == len(CASES)
    assert {kind: sum(case.kind == kind for case in CASES) for kind in KINDS} == KINDS
    assert {(path.parent.name, path.name) for path in CORPUS.glob("*/*")} <= named
