"""Standard streams that are closed before the program starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.forks import Forks
from helpers.said import Captured
from helpers.soak import with_soak

from deepthink_cli.cli.main import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses a shell's redirections")


def shell(command: str, closed: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = f"{sys.executable} -m deepthink_cli {command} {closed}"
    return subprocess.run(words, shell=True, cwd=folder, input="", capture_output=True, text=True)


@pytest.mark.parametrize("closed", [">&-", pytest.param(">&- 2>&-", marks=pytest.mark.soak), "<&- >&- 2>&-"])
def test_data_that_nobody_can_read_is_an_error(tmp_path: Path, closed: str) -> None:
    done = shell("--version", closed, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("closed", [pytest.param("2>&-", marks=pytest.mark.soak), "<&- 2>&-"])
def test_data_are_written_although_nobody_can_read_messages(tmp_path: Path, closed: str, capsys: Captured) -> None:
    assert run(["--version"]) == 0
    done = shell("--version", closed, tmp_path)
    assert (done.returncode, done.stdout) == (0, capsys.readouterr().out)


@pytest.mark.parametrize("closed", with_soak([">&-", "2>&-", ">&- 2>&-"], ["2>&-"]))
def test_a_mistake_has_its_exit_code_although_nobody_can_read_why(tmp_path: Path, closed: str) -> None:
    done = shell("inspect nothing", closed, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("deepthink: nothing: no such file") == ("2" not in closed)


@pytest.mark.plugins
def test_a_file_that_is_written_does_not_take_the_place_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("text,kind\na warm film,good\na dull film,bad\n" * 4)
    words = "select rows.csv --demos-by random --shots 2 -o mine.jsonl"
    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == 0
    written = (tmp_path / "mine.jsonl").read_bytes()
    (tmp_path / "mine.jsonl").unlink()
    shell(words, ">&- 2>&-", tmp_path)
    assert (tmp_path / "mine.jsonl").read_bytes() == written


WITHOUT_INPUT = """
import os, sys
os.close(0)
sys.stdin = None  # as Python represents it
sys.argv = "deepthink think - -o mem.safetensors".split()
from deepthink_cli.__main__ import main
main()
"""


def test_closed_standard_input_is_empty(tmp_path: Path, libraries: Forks) -> None:
    done = libraries.program(WITHOUT_INPUT, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "deepthink: standard input: no rows; give at least one\n"
