"""Packages of other people: what they add by entry points is known wherever names are, with options of its own."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Annotated

import pytest
from helpers.forks import Forks
from helpers.guests import TASK, Guest, install
from helpers.imports import HEAVY
from helpers.said import Captured

from deepthink_cli.cli.grouped import Given, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.options import OUTPUT, Flag, Options, joined

MODULE = '''
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from deepthink_cli.calibration.registry import Calibration
from deepthink_cli.artifact.container import Described, Opener
from deepthink_cli.options import METHOD, Flag, Options
from deepthink_cli.tasks.judges import Judge
from deepthink_cli.techniques.base import Technique
from deepthink_cli.plugins.context_tuning.technique import ContextTuning
from deepthink_cli.updates import UpdateRule

class Mirrored(Technique):
    summary = "the demonstrations, then again from the last to the first"
    source = "this test"
    copies = 2

    def change(self, demonstrations):
        return replace(demonstrations, examples=demonstrations.examples + demonstrations.examples[::-1])

@dataclass(frozen=True)
class Whole(ContextTuning):
    summary = "Context Tuning in sight of every token"
    dropout: float = 0.0

@dataclass(frozen=True)
class Halfway(UpdateRule):
    """The mean of what was read and what is read."""

    share: float = 0.5

    def __call__(self, history, present, state, place):
        return history.lerp(present, self.share), None

level = Calibration("level", lambda logs: 0 * logs.mean(axis=0), "batch", "no correction", "this test")

class Brief(Judge):
    summary = "the answer has no more words than asked for"
    source = "this test"

    def answers(self, free, gold, text, fields):
        return "brief", "brief" if len(text.split()) <= int(fields["words"]) else "long"

brief = Brief()

class LinkOptions(Options):
    last: Annotated[bool, Flag(METHOD, "Only the last iteration.")] = False

def target(path):
    from deepthink_cli.artifact.container import read_container
    return read_container(path).metadata

def follow(path, iteration, options):
    from deepthink_cli.artifact.opening import open_memory
    return open_memory(target(path), "last" if options.last else iteration)

def describe(path, verify):
    from deepthink_cli.artifact.format import read_header
    found = read_header(target(path)).metadata
    return Described({"to": target(path)}, {"link": f"to {target(path)}"}, found.demonstrations, found.sha256)

links = Opener(follow, describe, "links", "the name of a memory", "this test", LinkOptions)

task = Path(__file__).parent / "weather.yaml"

def hello(name: str = "you") -> None:
    """Greet somebody."""
    print(f"hello {name}")
'''
ENGINE = """
import torch
from deepthink_cli.engine.padded import PaddedEngine

class Own(PaddedEngine):
    def __init__(self, model):
        super().__init__(model, "an engine of somebody else's")
"""
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
from deepthink_cli.plugins.corrections.registry import nearest_mean
from deepthink_cli.selection.registry import Choice, SelectionMethod
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
    "updates": "halfway = guest:Halfway",
    "calibrations": "level = guest:level\nnear = doors:near",
    "selections": "brief = doors:brief",
    "tasks": "weather = guest:task",
    "engines": "own = guest_engine:Own",
    "techniques": "mirrored = guest:Mirrored\nfirst-ones = doors:FirstOnes\nwhole = guest:Whole",
    "exporters": "labels = doors:labels",
    "judges": "brief = guest:brief",
    "openers": "guest-link = guest:links",
    "commands": "hello = guest:hello\ncount = doors_command:count",
}
ROWS = [("sun", "yes"), ("rain", "no"), ("sun all day long", "yes"), ("rain again", "no"), ("warm", "yes")]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory, libraries: Forks) -> Iterator[Guest]:
    """A folder with an installed package, a task file of it, and demonstrations."""
    folder = tmp_path_factory.mktemp("guest")
    modules = {"guest": MODULE, "guest_engine": ENGINE, "doors": OBJECTS, "doors_command": COMMAND}
    installed = install(folder, libraries, ENTRIES, **modules)
    solved = [json.dumps({"text": f"{text} {n}", "label": label}) for n in range(3) for text, label in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(solved) + "\n")
    (folder / "weather.yaml").write_text(TASK)
    (folder / "weather").mkdir()
    for split in ("train", "test"):
        rows = [{"text": f"{split} {n}", "label": ("yes", "no")[n % 2]} for n in range(24)]
        (folder / "weather" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with installed.warmed() as warmed:
        yield warmed


def test_an_update_rule_and_an_engine_of_another_package_make_memories(guest: Guest) -> None:
    done = guest.run(
        "think demos.jsonl --update halfway:share=0.25 -T 2 --engine own -o mem.safetensors",
        "inspect mem.safetensors",
        "doctor --engine own",
    )
    assert done.returncode == 0, done.stderr
    assert "method    T = 2, halfway" in done.stdout
    assert "an engine of somebody else's" in done.stdout


def test_techniques_of_another_package_make_memories(guest: Guest) -> None:
    done = guest.run(
        "think demos.jsonl -T 2 --technique mirrored -o mirrored.safetensors",
        "inspect mirrored.safetensors",
        "eval mirrored.safetensors demos.jsonl",
        "think demos.jsonl --technique whole:steps=2 -o whole.safetensors",
        "inspect whole.safetensors",
    )
    assert done.returncode == 0, done.stderr
    assert "made by   mirrored" in done.stdout
    assert "T = 1 is one reading with mirrored\n" in done.stdout
    assert "made by   whole dropout=0 lr=0.001 seed=0 steps=2" in done.stdout
    assert "no drift: T = 1 is one reading, then trained" in done.stdout


def test_techniques_of_another_package_are_run_and_reported(guest: Guest) -> None:
    done = guest.run(
        "run --task weather --data-dir . -T 2 --technique deep-thinking,mirrored,first-ones-1,whole:steps=2 -o runs",
        "report runs --output-format csv",
    )
    assert done.returncode == 0, done.stderr
    table = list(csv.DictReader(done.stdout[done.stdout.index("model,") :].splitlines()))
    assert {row["technique"] for row in table} == {
        *("", "mirrored", "first-ones-1"),
        "whole steps=2 lr=0.001 dropout=0 seed=0",
    }
    assert all(row["icl_mean"] for row in table)  # each has the baseline of Deep-Thinking


@pytest.mark.plugins
def test_the_package_of_the_documentation_works(tmp_path: Path, libraries: Forks) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    package = tmp_path / "my_package"
    package.mkdir()
    for module, defined in (("techniques", "class Mirrored"), ("exporters", "npz = Exporter")):
        (text,) = (block for block in blocks if defined in block)
        (package / f"{module}.py").write_text(text)
    (project,) = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    groups = tomllib.loads(project)["project"]["entry-points"]
    lines = {group: [f"{name} = {place}" for name, place in entries.items()] for group, entries in groups.items()}
    installed = install(
        tmp_path, libraries, {group.removeprefix("deepthink."): "\n".join(entries) for group, entries in lines.items()}
    )
    done = installed.run(
        "think demos.jsonl --technique mirrored -T 2 -o mem.safetensors", "export mem.safetensors --to npz -o mem.npz"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote mem.npz: NumPy archive of ")


def test_a_judge_of_another_package_judges_the_answers_of_a_task(guest: Guest) -> None:
    (guest.folder / "free.yaml").write_text(
        TASK.replace("weather", "free").replace('labels: ["yes", "no"]', "free: {judge: brief, max_new_tokens: 8}")
    )
    (guest.folder / "free").mkdir()
    for split in ("train", "test"):
        rows = [{"text": f"{split} {n}", "label": "yes", "words": n * 8} for n in range(2)]
        (guest.folder / "free" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = guest.run(
        "think --task free.yaml --data-dir . -T 1 -o free.safetensors",
        "eval free.safetensors --task free.yaml --data-dir . -o answers.jsonl",
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in (guest.folder / "answers.jsonl").read_text().splitlines()]
    assert [(row["gold"], row["answer"]) for row in answers] == [("brief", "long"), ("brief", "brief")]


@pytest.mark.plugins
def test_files_of_another_package_are_scored_with_options_of_their_own(guest: Guest) -> None:
    text = json.dumps({"__metadata__": {"guest-link": "linked.safetensors"}}).encode()
    (guest.folder / "link.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    done = guest.each(
        "think demos.jsonl -T 2 --keep all -o linked.safetensors",
        "inspect link.safetensors",
        "predict link.safetensors demos.jsonl --at all -o all.jsonl",
        "predict link.safetensors demos.jsonl --at all --last -o last.jsonl",
        "eval link.safetensors demos.jsonl --last",
        "predict linked.safetensors demos.jsonl --last",
        "predict link.safetensors demos.jsonl --alpha 0.5",
        "diff link.safetensors linked.safetensors",
    )
    assert [each.returncode for each in done] == [0] * 5 + [2] * 3
    assert "link      to linked.safetensors\n\n2 demonstrations, " in done[1].stdout
    assert [len((guest.folder / f"{name}.jsonl").read_text().splitlines()) for name in ("all", "last")] == [4, 2]
    memory, vectors, compared = (each.stderr for each in done[5:])
    assert memory == "deepthink: --last: linked.safetensors holds a memory, and no links; omit it\n"
    assert vectors == "deepthink: --alpha 0.5: only with a file of iterative vectors; omit it\n"
    assert "link.safetensors: holds links, not a memory: predict and eval use them" in compared


@pytest.mark.plugins
def test_help_names_what_other_packages_add(guest: Guest) -> None:
    done = guest.run(
        "--help", "think --help-all", "eval --help-all", "export --help", "hello --name me", "hello --help"
    )
    assert done.returncode == 0, done.stderr
    words = set(done.stdout.replace(",", " ").replace(".", " ").replace(";", " ").split())
    assert words >= {"mirrored", "halfway", "level", "hello", "labels"}
    assert "Greet somebody." in done.stdout
    assert "hello me" in done.stdout


def test_objects_of_another_package_are_listed(guest: Guest) -> None:
    done = guest.run("list --json")
    assert done.returncode == 0, done.stderr
    rows = {(row["kind"], row["name"]): (row["summary"], row["source"]) for row in json.loads(done.stdout)}
    assert rows["techniques", "first-ones-K"] == ("the first K demonstrations", "this test")
    assert rows["techniques", "whole"] == ("Context Tuning in sight of every token", "")
    assert rows["updates", "halfway"] == ("The mean of what was read and what is read.", "")
    assert ("engines", "own") in rows
    assert rows["judges", "brief"] == ("the answer has no more words than asked for", "this test")


def test_a_task_of_another_package_is_listed(guest: Guest) -> None:
    for done in guest.each("tasks", "tasks weather"):
        assert (done.returncode, "weather" in done.stdout) == (0, True)


def test_the_names_of_an_engine_are_known_without_importing_its_module(guest: Guest) -> None:
    program = (
        "import sys\nfrom deepthink_cli.cli.main import run\nrun(['doctor', '--help'])\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(guest.folder), *sys.path]), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert "own" in done.stdout
    assert not set(done.stderr.split()) & {*HEAVY, "guest_engine"}


def test_what_cannot_be_imported_is_one_warning_that_names_it_and_the_program_goes_on(
    tmp_path: Path, libraries: Forks
) -> None:
    installed = install(
        tmp_path,
        libraries,
        {"calibrations": "level = broken:level", "commands": "hello = broken:hello"},
        broken="1 / 0",
    )
    done = installed.run("--help", "--help", "think demos.jsonl -T 1 -o mem.safetensors -q")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "warning: guest-package 1.0: deepthink.commands 'hello' (broken:hello) is not used: "
        "ZeroDivisionError: division by zero"
    ]
    done = installed.run("eval mem.safetensors demos.jsonl --calibrate level")
    assert done.returncode == 2
    *_, warning, refusal = done.stderr.splitlines()
    assert "guest-package 1.0: deepthink.calibrations 'level' (broken:level) is not used: ZeroDivisionError" in warning
    assert refusal.startswith("deepthink: --calibrate level: use none, contextual")
    assert refusal.endswith("prior, or several separated by commas")


WRONG = [
    ("updates", "gate = guest:Halfway", "the name is taken"),
    ("updates", "level = guest:level", "TypeError: not a dataclass whose instances can be called"),
    ("calibrations", "flat = guest:level", "ValueError: a calibration with another name, 'level'"),
    ("techniques", "level = guest:level", "TypeError: not a subclass of Technique"),
    ("selections", "level = guest:level", "TypeError: a Calibration, not a SelectionMethod"),
    ("openers", "level = guest:level", "TypeError: a Calibration, not a Opener"),
    ("selections", "none = guest:nothing", "AttributeError"),
]
NAMES = """
from deepthink_cli.artifact.container import OPENERS as openers
from deepthink_cli.calibration.registry import CALIBRATIONS as calibrations
from deepthink_cli.selection.registry import METHODS as selections
from deepthink_cli.techniques.registry import TECHNIQUES as techniques
from deepthink_cli.updates import RULES as updates
"""


def test_what_is_not_what_its_kind_asks_for_is_left_out_with_one_warning(tmp_path: Path, libraries: Forks) -> None:
    entries = {kind: "\n".join(entry for each, entry, _ in WRONG if each == kind) for kind, _, _ in WRONG}
    install(tmp_path, libraries, entries, guest=MODULE)
    asked = "".join(f"print({entry.split()[0]!r} in dict({kind}.items()))\n" for kind, entry, _ in WRONG)
    done = libraries.program(NAMES + asked, PYTHONPATH=str(tmp_path))
    assert done.stdout.split() == [str(reason == "the name is taken") for _, _, reason in WRONG]
    warnings = done.stderr.splitlines()
    assert len(warnings) == len(WRONG)
    for kind, entry, reason in WRONG:
        (warning,) = [line for line in warnings if f"deepthink.{kind} {entry.split()[0]!r}" in line]
        assert f"is not used: {reason}" in warning


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
    assert "first-ones-K with K from 1" in refused.stderr


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
