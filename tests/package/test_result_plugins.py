"""Packages of other people that do something with results: formats, observers, published figures, forms of figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.forks import Forks
from helpers.guests import Guest, install
from helpers.synthetic import THREE, seeds, write

MODULE = """
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation.report import EvaluationEnded, RowPredicted
from deepthink_cli.events import Note
from deepthink_cli.experiments.executors.base import RowMade
from deepthink_cli.observers import Observer
from deepthink_cli.options import OUTPUT, Flag, Options
from deepthink_cli.report.cells import Published
from deepthink_cli.report.registry import FigureForm, FigureOptions, Format

def write_names(report, file):
    file.write("".join(f"{line.name}\\n" for line in report.rows))
    return ["that was all"]

def write_folder(report, folder):
    folder.mkdir()
    (folder / "jobs.txt").write_text(str(len(report.jobs)))

names = Format(write_names, "names of tasks", suffixes=(".names",))
many = Format(write_folder, "a folder", is_folder=True, without=("published",))

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
        self.told += isinstance(event, (RowPredicted, RowMade))
        self.path.write_text(f"{self.line.split()[1]} {self.told}")
        if isinstance(event, EvaluationEnded):
            self.tell(Note("all is counted"))

@dataclass(frozen=True)
class Figure:
    accuracy: float
    table: int

def find(row):
    return (Figure(12.5, 4), None) if row.name == "mine" else (None, None)

def notes(lines):
    return [f"Others: {len(lines)} rows"]

others = Published(find, notes, "other figures", "this test")

class DotsOptions(FigureOptions):
    kind: Literal["dots"]
    size: int = 1

def draw(form, jobs):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(form.size, form.size))
    figure.add_subplot().plot([job.seed.number for job in jobs], [1 for _ in jobs], "o")
    return figure

dots = FigureForm(DotsOptions, draw, "dots", "this test")
studies = Path(__file__).parent / "studies"

tally = Observer(("run", "eval"), TallyOptions, check, Tally, "counts events")
"""
ENTRIES = {
    "formats": "names = guest:names\nmany = guest:many",
    "observers": "tally = guest:tally",
    "published": "others = guest:others",
    "forms": "dots = guest:dots\nother = guest:dots",
    "studies": "guest = guest:studies",
}
STUDY = "title: Mine\ntasks: sst2\nmodels: gpt2\nfigure: {kind: dots, size: 2}\n"


@pytest.fixture
def guest(tmp_path: Path, libraries: Forks) -> Guest:
    """A folder with an installed package, a run and demonstrations."""
    write(tmp_path / "out", seeds(THREE))
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.yaml").write_text(STUDY)
    return install(tmp_path, libraries, ENTRIES, guest=MODULE)


def test_a_report_is_written_in_a_format_of_another_package(guest: Guest) -> None:
    shown, written, folder, refused = guest.each(
        "report out --output-format names",
        "report out -o tasks.names -q",
        "report out --output-format many -o folder -q",
        "report out --output-format many -o folder --published",
    )
    assert [each.returncode for each in (shown, written, folder)] == [0] * 3
    assert (shown.stdout, shown.stderr.splitlines()[-1]) == ("sst2\n", "that was all")
    assert (guest.folder / "tasks.names").read_text() == "sst2\n"
    assert (guest.folder / "folder" / "jobs.txt").read_text() == "3"
    assert "--published: is about tables, and --output-format many writes none; omit it" in refused.stderr


def test_an_observer_of_another_package_is_told_of_results(guest: Guest) -> None:
    thought, done, refused = guest.each(
        "think demos.jsonl -T 2 -o mem.safetensors -q",
        "eval mem.safetensors demos.jsonl --tally eval.txt --limit 1",
        "eval mem.safetensors demos.jsonl --tally demos.jsonl",
    )
    assert done.returncode == 0, done.stderr
    assert (guest.folder / "eval.txt").read_text() == "eval 2"
    assert "all is counted" in done.stderr
    assert "warning: the option 'limit' of tally is not used: the name is taken" in thought.stderr
    assert refused.stderr.splitlines()[-1] == "deepthink: --tally demos.jsonl: is read; name another file"


@pytest.mark.plugins
def test_a_report_shows_published_figures_of_another_package(guest: Guest) -> None:
    write(guest.folder / "mine", [*seeds(THREE), *seeds(THREE, task="mine")])
    done = guest.run("report mine --published --json", "report --help-all")
    assert done.returncode == 0, done.stderr
    first, rest = done.stdout.split("\n", 1)
    shown = json.loads(first)
    figures = {row["task"]: (row["paper_table"], row["paper_icl"], row["paper_thinking"]) for row in shown["rows"]}
    assert figures["mine"] == (4, 0.125, None)
    assert figures["sst2"][0] in (1, 2)
    assert "Others: 1 rows" in shown["footnotes"]
    assert "Show the paper's figures and other figures next to those of the run." in " ".join(rest.split())


@pytest.mark.plugins
def test_a_study_of_another_package_is_drawn_in_its_form(guest: Guest) -> None:
    (guest.folder / "out" / "study.json").write_text('{"study": "guest/mine"}')
    done = guest.run("study list", "plot out -o figure.png")
    assert done.returncode == 0, done.stderr
    assert "guest/mine" in done.stdout
    assert (guest.folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "deepthink.forms 'other' (guest:dots) is not used: ValueError: its options have another kind" in done.stderr


def test_a_form_that_is_not_installed_is_refused_by_its_name(guest: Guest) -> None:
    (guest.folder / "pies.yaml").write_text(STUDY.replace("dots", "pies"))
    refused = guest.run("study plan pies.yaml")
    assert refused.returncode == 2
    assert "pies.yaml:4: figure: kind 'pies' is not a form of figures that is installed; use " in refused.stderr
