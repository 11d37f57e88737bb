"""A private task needs a template, labels and a file; everything else has a default."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.said import Captured, json_of, output
from helpers.tiny import reviews

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.tasks.catalogue import digest
from deepthink_cli.tasks.files import read_tasks, validated
from deepthink_cli.tasks.sources import Source, split_rows

SHORT = 'template: "Review: {body}\\nKind: {kind}"\nlabels: [bad, good]\nrows: data.csv\n'


def write_csv(path: Path, count: int = 40) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["body", "kind"])
        table.writeheader()
        table.writerows(reviews("play", count))


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task file of three lines beside its rows."""
    write_csv(tmp_path / "data.csv")
    (tmp_path / "plays.yaml").write_text(SHORT)
    return tmp_path / "plays.yaml"


def bodies(path: Path, split: str) -> list[str]:
    (task,) = read_tasks(path)
    return [row.fields["body"] for row in split_rows(task, split, Source())]


def refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        validated(path)
    return str(caught.value).removeprefix(str(path))


def test_what_is_omitted_has_a_default(task: Path) -> None:
    (plays,) = validated(task)
    assert (plays.name, plays.folder, plays.shots, plays.answer.column) == ("plays", "plays", 8, "kind")
    assert {name: piece.column for name, piece in plays.fields.items()} == {"body": "body"}
    assert [protocol.split for protocol in plays.protocols.values()] == ["test"]


def test_of_every_two_rows_one_gives_demonstrations_and_the_other_is_evaluated(task: Path) -> None:
    train, test = bodies(task, "train"), bodies(task, "test")
    rows = [str(row["body"]) for row in reviews("play", 40)]
    assert [len({*pair} & {*train}) for pair in zip(rows[::2], rows[1::2], strict=True)] == [1] * 20
    assert sorted(train + test) == sorted(rows)
    assert train not in (rows[::2], rows[1::2])


def test_rows_at_the_end_do_not_move_the_others(task: Path) -> None:
    before = bodies(task, "train")
    write_csv(task.parent / "data.csv", 40)
    with open(task.parent / "data.csv", "a") as file:
        file.write("another,1\nlast,0\n")
    assert bodies(task, "train")[: len(before)] == before


def test_demonstrations_and_evaluated_rows_may_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    write_csv(tmp_path / "rows" / "a.dat")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps({"body": "x", "kind": "good"}).encode()))
    path = tmp_path / "plays.yaml"
    path.write_text(SHORT.replace("rows: data.csv", "train: {file: rows/a.dat, format: csv}\ntest: b.jsonl.gz"))
    assert (len(bodies(path, "train")), bodies(path, "test")) == (40, ["x"])
    assert len(validated(path)) == 1


def test_the_place_of_the_files_does_not_identify_a_task(task: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    moved = tmp_path / "other" / "plays.yaml"
    moved.write_text(SHORT.replace("data.csv", "../data.csv"))
    assert digest(read_tasks(task)[0]) == digest(read_tasks(moved)[0])
    moved.write_text(SHORT.replace("rows: data.csv", "train: a.csv\ntest: b.csv"))
    assert digest(read_tasks(task)[0]) != digest(read_tasks(moved)[0])


def test_a_private_task_is_thought_about_and_evaluated(task: Path, models: Models, capsys: Captured) -> None:
    memory = task.parent / "mem.safetensors"
    assert run(f"think --task {task} --shots 4 -q -m {models('llama')} -o {memory}".split()) == 0
    evaluated = json_of(capsys, "eval", memory, "--task", task, "-q", "--json")
    assert (evaluated["task"], evaluated["n"], evaluated["protocol"]) == ("plays", 20, "own")
    assert run(["predict", str(memory), str(task.parent / "data.csv"), "-q"]) == 0


@pytest.mark.plugins
def test_its_rows_are_shown_and_counted(task: Path, capsys: Captured) -> None:
    shown = output(capsys, "tasks", task)
    assert f"rows            {task.parent / 'data.csv'}" in shown
    assert "A demonstration, from the first row:" in shown
    assert "split test, 20 rows" in shown


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows: data.csv", "rows: 3", ":3: rows: must name a file, as in rows: data.csv"),
        (
            "rows: data.csv",
            "rows: {file: data.csv, sep: x}",
            ":3: rows: no such field 'sep'; give file, format, header and quotes",
        ),
        ("rows: data.csv", "train: data.csv", ":3: train: give rows, one file for both, or train and test, a file"),
        ("rows: data.csv", "rows: data.csv\ntest: data.csv", ":3: rows: give rows, one file for both, or train and"),
        ("rows: data.csv", "rows: data.csv\nsplits: {}", ":4: splits: the file names its rows already; give one"),
        ("rows: data.csv", "rows: gone.csv", ":1: plays: "),
        ("{kind}", "{label}", ":1: plays: its first row "),
        ("labels: [bad, good]\n", "", ":1: give labels, or candidates if every row has its own"),
    ],
)
def test_a_wrong_private_task_is_named_with_its_line(task: Path, old: str, new: str, message: str) -> None:
    assert refusal(task, SHORT.replace(old, new)).startswith(message)


def test_texts_without_labels_are_no_task(task: Path) -> None:
    (task.parent / "texts.txt").write_text("one\ntwo\n")
    assert "a .txt file has texts without labels" in refusal(task, SHORT.replace("data.csv", "texts.txt"))


def test_a_row_with_its_own_candidates_needs_no_labels(tmp_path: Path) -> None:
    rows = [{"q": f"Question {n}?", "options": ["yes", "no"], "a": n % 2} for n in range(4)]
    write_rows(tmp_path / "rows.jsonl", rows)
    path = tmp_path / "quiz.yaml"
    path.write_text('template: "{q} {a}"\ncandidates: {column: options}\nrows: rows.jsonl\n')
    assert validated(path)[0].candidates is not None
