"""Answers that are programs: what is run, only if it may be, and what is said of its confinement before."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured

from deepthink_cli.cli.main import run
from deepthink_cli.data.source import Row
from deepthink_cli.errors import InputError
from deepthink_cli.generation.answers import judged
from deepthink_cli.generation.generation import Generation
from deepthink_cli.plugins.run_code import program, sandbox
from deepthink_cli.plugins.run_code.program import FAILED, PASSED, program_of
from deepthink_cli.plugins.run_code.sandbox import Program
from deepthink_cli.tasks.catalogue import built_in
from deepthink_cli.tasks.format import Free
from deepthink_cli.tasks.items import query_of

PROBLEMS: list[dict[str, object]] = [
    {
        "text": f"Return {n}.",
        "code": f"def answer():\n    return {n}",
        "test_list": [f"assert answer() == {n}"],
        "test_setup_code": "",
    }
    for n in range(8)
]


@pytest.fixture
def free() -> Free:
    """The answers of MBPP."""
    free = built_in()["mbpp"].free
    assert free is not None
    return free


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with rows in the layout of MBPP."""
    (tmp_path / "mbpp").mkdir()
    write_rows(tmp_path / "mbpp" / "prompt.jsonl", PROBLEMS[:3])
    write_rows(tmp_path / "mbpp" / "test.jsonl", PROBLEMS[3:])
    return tmp_path


def test_a_program_is_the_answer_with_columns_of_its_row(free: Free) -> None:
    row = PROBLEMS[3]
    right = program_of(free, "```python\ndef answer():\n    return 3\n```\nIt returns 3.", row)
    assert right == Program("\n", "def answer():\n    return 3", "\nassert answer() == 3")
    with pytest.raises(InputError, match="the row has no column 'test_setup_code'"):
        program_of(free, "pass", {"test_list": []})


@pytest.mark.parametrize("way", ["bubblewrap", "namespaces", "limits"])
def test_what_holds_is_said_before_a_program_runs_and_root_is_refused_with_limits_alone(
    way: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for module in (sandbox, program):
        monkeypatch.setattr(module, "way_to_confine", lambda: way)
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: 0)
    words = ["run", "--task", "mbpp", "--data-dir", str(data), "--dry-run", "--run-code", "--json"]
    refused = way == "limits"
    assert run(words) == (2 if refused else 0)
    err = capsys.readouterr().err
    assert ("--run-code: programs would run as root" in err) == refused
    told = "task mbpp: programs are run " + {"bubblewrap": "in bubblewrap, without network"}.get(way, "with")
    assert (told in err) == (not refused)
    assert ("warning" in err) == (way != "bubblewrap" and not refused)


def test_code_is_judged_by_its_tests(free: Free) -> None:
    query = query_of(built_in()["mbpp"], Row(PROBLEMS[4], "x:1"))
    labels = [
        judged(free, Generation(query, 1, text, 5, "stop")).label
        for text in ("def answer():\n    return 4\n", "def answer():\n    return 5\n")
    ]
    assert labels == [PASSED, FAILED]
