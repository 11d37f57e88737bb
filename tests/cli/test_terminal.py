"""Nothing that people read can steer their terminal, whoever wrote the names and texts in it; data stay as they are."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from helpers.said import Captured
from helpers.synthetic import curve, write
from helpers.tiny import tiny_task

from deepthink_cli.cli.console import note, progress
from deepthink_cli.cli.main import MESSAGE, run

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x08\u202etxt.exe\u2066\u200f\u2028\x85\r\x0b|$&*`_"
KIND = "é שלום مرحبا 日本 👩‍👩‍👧 e\u0301"


def safe(capsys: Captured) -> tuple[str, str]:
    """What was printed on stdout and stderr, which no terminal obeys."""
    out, err = capsys.readouterr()
    assert not STEERING.search(out + err)
    return out, err


def test_a_note_is_one_line(capsys: Captured) -> None:
    note(f"wrote {EVIL}")
    _, err = safe(capsys)
    assert err.count("\n") == 1


def test_an_error_keeps_its_beginning_and_its_hint(capsys: Captured) -> None:
    assert run(["think", "x" * 10_000_000 + ".jsonl"]) == 2
    _, err = safe(capsys)
    assert err.startswith("deepthink: xxx")
    assert err.endswith("no such file; check the path, or use - for standard input\n")
    assert len(err) < MESSAGE + 10


@pytest.mark.parametrize(
    "arguments",
    [
        [EVIL],
        ["think", EVIL],
        ["think", f"--{EVIL}"],
        ["predict", EVIL, EVIL],
        ["tasks", "validate", EVIL + ".yaml"],
        ["run", "--task", EVIL, "-o", EVIL],
        [
            "think",
            "demos.jsonl",
            *("-m", EVIL, "--labels", EVIL, "--eta", EVIL),
            *("--template", EVIL, "-o", f"{EVIL}/x"),
        ],
        ["think", "demos.jsonl", "--config", "evil.yaml"],
    ],
)
def test_errors_do_not_steer(
    arguments: list[str], demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yaml").write_text(json.dumps({EVIL: 1}))
    assert run(arguments) == 2
    _, err = safe(capsys)
    assert err.startswith("deepthink: ")


def test_a_printed_task_of_any_characters_is_still_the_task(tmp_path: Path, capsys: Captured) -> None:
    from deepthink_cli.tasks.catalogue import read_tasks

    task, _ = tiny_task(tmp_path, title=EVIL, note=KIND)
    assert run(["tasks", str(task), "--yaml"]) == 0
    (tmp_path / "copy.yaml").write_text(safe(capsys)[0])
    assert read_tasks(tmp_path / "copy.yaml") == read_tasks(task)


def test_no_name_breaks_out_of_a_table(tmp_path: Path, capsys: Captured) -> None:
    folder = str(write(tmp_path / "run", curve([50, 60], task="*a | b\n| c\r\n\\end{x} $1 <b> `d` & ~")))
    assert run(["report", folder, "--output-format", "markdown"]) == 0
    head, rule, row = [line for line in safe(capsys)[0].splitlines() if line.startswith("|")]
    assert len(re.findall(r"(?<!\\)\|", row)) == head.count("|") == rule.count("|")
    assert run(["report", folder, "--output-format", "csv"]) == 0
    assert len(list(csv.DictReader(io.StringIO(safe(capsys)[0])))) == 1


def test_a_progress_bar_shows_hostile_names_safely() -> None:
    from rich.console import Console

    shown = progress(False, "more")
    screen = io.StringIO()
    shown.live.console = Console(file=screen, width=200, force_terminal=False)
    shown.add_task(f"reading {EVIL}", total=2, more=EVIL)
    shown.live.console.print(shown.get_renderable())
    assert r"\x1b]0;owned\x07" in screen.getvalue()
    assert not STEERING.search(screen.getvalue())
