"""Packages of other people that do something with results: formats of a report, and observers of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.forks import Forks
from helpers.synthetic import THREE, seeds, write
from test_plugins import DEMONSTRATIONS, deepthink, install

from deepthink_cli.cli import evaluate, report, run, study, study_run
from deepthink_cli.observers import OBSERVERS

MODULE = """
from pathlib import Path
from typing import Annotated

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.progress import Evaluated, Predicted
from deepthink_cli.events import Note
from deepthink_cli.experiments.progress import RowWritten
from deepthink_cli.observers import Observer
from deepthink_cli.options import OUTPUT, Flag, Options
from deepthink_cli.report.registry import Format, Reported

def write_names(reported, file):
    file.write("".join(f"{line.row.name}\\n" for line in reported.page.rows))
    return ["that was all"]

def write_folder(reported, folder):
    folder.mkdir()
    (folder / "jobs.txt").write_text(str(len(reported.jobs)))

names = Format(write_names, "names of tasks", suffixes=(".names",))
many = Format(write_folder, "a folder", is_folder=True, without=("published", "tally"))

class TallyOptions(Options):
    tally: Annotated[Path | None, Flag(OUTPUT, "Count what is told.", "FILE")] = None
    limit: Annotated[int | None, Flag(OUTPUT, "Taken.", "N")] = None

def check(options, read, runs):
    if any(Path(each) == options.tally for each in read):
        raise InputError.of("tally", options.tally, "is read; name another file")

class Tally:
    def __init__(self, options, line, tell):
        self.path, self.line, self.tell, self.told = options.tally, line, tell, 0

    def __call__(self, event):
        self.told += isinstance(event, (Predicted, RowWritten, Reported))
        self.path.write_text(f"{self.line.split()[1]} {self.told}")
        if isinstance(event, Evaluated):
            self.tell(Note("all is counted"))

tally = Observer(("run", "eval", "report"), TallyOptions, check, Tally, "counts events")
"""
ENTRIES = {"formats": "names = guest:names\nmany = guest:many", "observers": "tally = guest:tally"}


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """A folder with an installed package, a run and demonstrations."""
    install(tmp_path, ENTRIES, guest=MODULE)
    write(tmp_path / "out", seeds(THREE))
    (tmp_path / "demos.jsonl").write_text(DEMONSTRATIONS)
    return tmp_path


def test_a_report_is_written_in_a_format_of_another_package(guest: Path, libraries: Forks) -> None:
    done = deepthink(
        libraries,
        guest,
        "report out --output-format names",
        "report out -o tasks.names -q",
        "report out --output-format many -o folder -q",
    )
    assert (done.returncode, done.stdout) == (0, "sst2\n"), done.stderr
    assert done.stderr.splitlines()[-1] == "that was all"
    assert (guest / "tasks.names").read_text() == "sst2\n"
    assert (guest / "folder" / "jobs.txt").read_text() == "3"
    refused = deepthink(libraries, guest, "report out --output-format many -o folder --tally all.txt")
    assert "--tally: is about tables, and --output-format many writes none; omit it" in refused.stderr


def test_an_observer_of_another_package_is_told_of_results(guest: Path, libraries: Forks) -> None:
    done = deepthink(
        libraries,
        guest,
        "think demos.jsonl -T 2 -o mem.safetensors -q",
        "eval mem.safetensors demos.jsonl --tally eval.txt --limit 1",
        "report out --tally report.txt -q",
    )
    assert done.returncode == 0, done.stderr
    assert (guest / "eval.txt").read_text() == "eval 2"
    assert (guest / "report.txt").read_text() == "report 1"
    assert "all is counted" in done.stderr
    assert "warning: the option 'limit' of tally is not used: the name is taken" in done.stderr
    refused = deepthink(libraries, guest, "eval mem.safetensors demos.jsonl --tally demos.jsonl")
    assert refused.stderr.splitlines()[-1] == "deepthink: --tally demos.jsonl: is read; name another file"


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        (evaluate.evaluate, evaluate.TAKEN),
        (run.run, run.TAKEN),
        (study_run.run_study, study_run.TAKEN),
        (report.report, report.TAKEN),
        (study.report_study, report.TAKEN),
    ],
)
def test_no_observer_can_have_an_option_of_the_command(command: Any, taken: set[str]) -> None:
    of_observers = {name for each in OBSERVERS.values() for name in each.options.model_fields}
    assert {*command.__signature__.parameters} - {"context"} - of_observers <= taken
