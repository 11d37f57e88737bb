"""A package beside this one has what its users need: options of its own, the shared ones, and a place in help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import signature
from typing import Annotated

import pytest
from helpers.forks import Forks
from helpers.guests import Guest, install
from helpers.said import Captured

from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.options import OUTPUT, Flag, Options, joined

COMMAND = '''
import typer
from typing import Annotated

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, report, write_json
from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.errors import InputError
from deepthink_cli.model.options import ModelOptions

@about("count 3 --json", group="Counting", first="as_json quiet")
@grouped
def count(
    to: Annotated[int, typer.Argument()], *, model: Given[ModelOptions], common: CommonArguments
) -> None:
    """Count to a number."""
    if to < 0:
        raise InputError.of("to", to, "cannot be counted to; give 0 or more")
    1 / to
    note("counting", common.quiet)
    write_json({"to": to, "model": model.model}) if common.as_json else report(str(to))
'''
OBJECTS = '''
from typing import Annotated
from pydantic import Field

from deepthink_cli.calibration.registry import Calibration
from deepthink_cli.export import Exporter
from deepthink_cli.options import DATA, OUTPUT, Flag, Options
from deepthink_cli.calibration.discriminants import nearest_mean
from deepthink_cli.selection.base import Choice, SelectionMethod
from deepthink_cli.techniques.base import Technique

class FirstOnes(Technique):
    """The first K demonstrations."""

    summary, source, parameter, smallest = "the first K demonstrations", "this test", "K", 1

    def change(self, demonstrations):
        from dataclasses import replace
        return replace(demonstrations, examples=demonstrations.examples[: self.number])

class Words(Options):
    words: Annotated[Annotated[int, Field(ge=1)], Flag(DATA, "The most words of a text.", "N")] = 3

def short(pool, shots, draw, words):
    return Choice([n for n, row in enumerate(pool.rows) if len(str(row.text).split()) <= words][:shots])

brief = SelectionMethod(short, "short texts", "this test", options=Words)

class Separator(Options):
    between: Annotated[str, Flag(OUTPUT, "What stands between labels.", "TEXT", hint="TEXT, as in --between ,")]

def write(export):
    export.output.write_text(export.options.between.join(export.memory.provenance.demonstrations.labels))

labels = Exporter(write, "labels", "the labels of a memory", "this test", options=Separator)
near = Calibration("near", nearest_mean, "labelled", "the nearest label", "this test", of_states=True)
'''
ENTRIES = {
    "commands": "count = doors_command:count",
    "techniques": "first-ones = doors:FirstOnes",
    "selections": "brief = doors:brief",
    "exporters": "labels = doors:labels",
    "calibrations": "near = doors:near",
}
ROWS = [("sun", "yes"), ("rain", "no"), ("sun all day long", "yes"), ("rain again", "no"), ("warm", "yes")]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory, libraries: Forks) -> Iterator[Guest]:
    """A folder with an installed package, rows, and a memory of demonstrations."""
    folder = tmp_path_factory.mktemp("doors")
    installed = install(folder, libraries, ENTRIES, doors=OBJECTS, doors_command=COMMAND)
    rows = [json.dumps({"text": f"{text} {n}", "label": label}) for n in range(3) for text, label in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    with installed.warmed() as warmed:
        yield warmed


def test_a_command_has_its_group_its_example_and_the_options_that_all_commands_share(guest: Guest) -> None:
    first, page, done, loud = guest.each("--help", "count --help", "count 3 --json -q -m gpt2", "count 3")
    assert "Counting" in first.stdout
    assert "Example: deepthink count 3 --json" in page.stdout
    assert "more options: deepthink count --help-all" in page.stdout
    assert "--model" not in page.stdout
    assert (json.loads(done.stdout), done.stderr) == ({"to": 3, "model": "gpt2"}, "")
    assert loud.stderr == "counting\n"


def test_a_mistake_of_its_user_is_one_line_and_a_bug_has_a_traceback_with_debug(guest: Guest) -> None:
    refused, failed = guest.each("count --json -- -1", "count 0 --debug")
    assert (refused.returncode, refused.stderr) == (2, "deepthink: --to -1: cannot be counted to; give 0 or more\n")
    assert failed.returncode == 70
    assert "Traceback" in failed.stderr


def test_a_technique_numbers_from_where_it_likes(guest: Guest) -> None:
    words = "think demos.jsonl -T 1 -o one.safetensors -q --technique"
    done, refused = guest.each(f"{words} first-ones-1", f"{words} first-ones-0")
    assert done.returncode == 0, done.stderr
    assert "first-ones-K with K from 1 (as in first-ones-5)" in refused.stderr


def test_a_selection_method_has_options_of_its_own(guest: Guest) -> None:
    words = "select rows.jsonl --shots 2 -o chosen.jsonl --demos-by"
    done, other, zero = guest.each(f"{words} brief --words 2", f"{words} random --words 2", f"{words} brief --words 0")
    assert done.returncode == 0, done.stderr
    chosen = [json.loads(line)["text"] for line in (guest.folder / "chosen.jsonl").read_text().splitlines()]
    assert all(len(text.split()) <= 2 for text in chosen)
    assert other.stderr == "deepthink: --words 2: only with --demos-by brief; omit it\n"
    assert (zero.returncode, zero.stderr[:22]) == (2, "deepthink: --words 0: ")


@pytest.mark.plugins
def test_an_exporter_has_options_of_its_own(guest: Guest) -> None:
    words = "export mem.safetensors -o labels.txt --to"
    done, needed, refused = guest.each(f"{words} labels --between +", f"{words} labels", f"{words} mlx --between +")
    assert done.returncode == 0, done.stderr
    assert (guest.folder / "labels.txt").read_text() in ("yes+no", "no+yes")
    assert needed.stderr == "deepthink: --to labels needs --between TEXT, as in --between ,\n"
    assert refused.stderr == "deepthink: --between +: only with --to labels; omit it\n"


def test_an_option_whose_name_is_taken_is_left_out_with_a_warning(capsys: Captured) -> None:
    class Quiet(Options):
        quiet: Annotated[bool, Flag(OUTPUT, "No words.")] = False
        loud: Annotated[bool, Flag(OUTPUT, "Many words.")] = False

    class Loud(Options):
        loud: Annotated[bool, Flag(OUTPUT, "More words.")] = True

    both = joined("Both", {"quiet": Quiet, "loud": Loud})
    assert [*both.model_fields] == ["quiet", "loud"]

    def command(*, own: Given[both], common: CommonArguments) -> None:  # type: ignore[valid-type]
        raise AssertionError

    command.__annotations__["own"] = Given[both]
    options = signature(grouped(command)).parameters
    assert [*options].count("quiet") == 1
    assert capsys.readouterr().err.splitlines() == [
        "warning: the option 'loud' of loud is not used: the name is taken",
        "warning: the option 'quiet' of quiet is not used: the name is taken",
    ]


def test_a_calibration_that_compares_hidden_states_is_stored_and_used(guest: Guest) -> None:
    stored, done, refused = guest.each(
        "calibrate mem.safetensors rows.jsonl --calibrate near -o near.safetensors -q",
        "eval near.safetensors rows.jsonl --json",
        "predict mem.safetensors rows.jsonl --calibrate bogus",
    )
    assert (stored.returncode, done.returncode) == (0, 0), done.stderr
    assert json.loads(done.stdout)["judged"]["correction"] == "stored"
    assert "near" not in refused.stderr.partition("use ")[2]
