"""`deepthink tasks new` writes a task file that loads, says what it guessed, and refuses what it cannot guess."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import write_rows

from deepthink_cli.cli.main import run
from deepthink_cli.data.source import RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.tasks.files import read_tasks
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set
from deepthink_cli.tasks.starter import NewTask, new_task

Captured = pytest.CaptureFixture[str]


def tickets(count: int = 24, **more: Any) -> list[dict[str, Any]]:
    topics = ["billing", "delivery", "other: misc"]
    return [{"id": n, "text": f"Ticket number {n} of many", "topic": topics[n % 3], **more} for n in range(count)]


def made(folder: Path, rows: list[dict[str, Any]], label: str | None = None) -> NewTask:
    file = write_rows(folder / "data.jsonl", rows)
    return new_task("mine", RowSource(str(file)), folder / "mine.yaml", label)


def refusal(folder: Path, rows: list[dict[str, Any]], label: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        made(folder, rows, label)
    return str(caught.value).replace(f"{folder}/", "")


def test_texts_and_labels_are_guessed_and_every_part_is_explained(tmp_path: Path) -> None:
    task = made(tmp_path, tickets()).task
    assert task.template == "Text: {text}\nTopic: {topic}"
    assert (task.labels, task.shots, task.sampling) == (["billing", "delivery", "other: misc"], 6, "stratified")
    text = (tmp_path / "mine.yaml").read_text()
    assert '  - "billing"  # 8 rows' in text
    assert "# Columns that are not used: id" in text
    assert 'rows: "data.jsonl"' in text


def test_its_rows_are_drawn_and_evaluated(tmp_path: Path) -> None:
    task = made(tmp_path, tickets()).task
    evaluated = evaluation_set(task, "official", Source())
    assert (len(evaluated), len(draw_demonstrations(task, evaluated).demonstrations.examples)) == (12, 6)


@pytest.mark.parametrize(
    ("rows", "label"),
    [
        ([{"label": n % 2, "sentence": f"some film {n}"} for n in range(8)], "label"),
        ([{"kind": "ab"[n % 2], "a text": f"some film {n}", "seen": f"day {n}"} for n in range(8)], "kind"),
        ([{"text": f"some film {n}", "seen": "day"[n % 3], "kind": "ab"[n % 2]} for n in range(8)], "kind"),
        ([{"question": f"Why {n}?", "choices": ["x", "y"], "answer": n % 2} for n in range(8)], "answer"),
    ],
)
def test_the_label_is_told_by_its_name_its_values_or_its_place(
    tmp_path: Path, rows: list[dict[str, Any]], label: str
) -> None:
    assert made(tmp_path, rows).task.answer.column == label


def test_numbers_may_be_replaced_by_words(tmp_path: Path) -> None:
    made(tmp_path, [{"text": f"some film {n}", "label": n % 2} for n in range(8)])
    path = tmp_path / "mine.yaml"
    assert "# Replace the numbers by words, in this order" in path.read_text()
    path.write_text(path.read_text().replace('"0"', "bad").replace('"1"', "good"))
    (task,) = read_tasks(path)
    assert {query.gold for query in evaluation_set(task, "official", Source())} == {"bad", "good"}


def test_any_name_of_a_column_and_any_label_can_be_written(tmp_path: Path) -> None:
    labels = ['"quoted" # no', "\u2028 ü 😀", "yes"]
    rows = [{"The. Text: [x]": f"some {{film}} {n}", "my:label": labels[n % 3]} for n in range(12)]
    task = made(tmp_path, rows, "my:label").task
    assert sorted(task.labels or []) == sorted(label.strip() for label in labels)
    assert task.template == "The Text x: {The_Text_x}\nMy label: {my_label}"
    assert len(evaluation_set(task, "official", Source())) == 6


@pytest.mark.parametrize(
    ("rows", "label", "reason"),
    [
        (tickets(), "none", "label_field none: data.jsonl has the columns id, text, topic"),
        (tickets(200), "text", "label_field text: more than 100 different values in data.jsonl; 2 to 100 are labels"),
        ([{"a": f"some text {n}", "b": f"text {n}"} for n in range(9)], None, "data.jsonl: cannot tell which column"),
        ([{"a": "xy"[n % 2], "b": "vw"[n % 2], "c": f"a b {n}"} for n in range(9)], None, "data.jsonl: cannot tell"),
        ([{"n": n, "label": "ab"[n % 2]} for n in range(9)], None, "data.jsonl: no column of texts beside 'label'"),
    ],
)
def test_what_cannot_be_guessed_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], label: str | None, reason: str
) -> None:
    assert refusal(tmp_path, rows, label).startswith(reason)
    assert not (tmp_path / "mine.yaml").exists()


def test_a_file_is_replaced_only_if_that_is_asked_for(tmp_path: Path, capsys: Captured) -> None:
    data, path = write_rows(tmp_path / "data.jsonl", tickets()), tmp_path / "mine.yaml"
    path.write_text("precious")
    words = ["tasks", "new", "mine", "--from", str(data), "-o", str(path)]
    assert run(words) == 2
    assert "exists; give --force to replace it" in capsys.readouterr().err
    assert path.read_text() == "precious"
    assert run([*words, "--force"]) == 0
    assert f"next: edit it, then: deepthink tasks {path}" in capsys.readouterr().err


def test_a_format_that_the_suffix_does_not_say_is_written_down(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "export.dat").write_text("text;label\n" + "".join(f"some film {n};{n % 2}\n" for n in range(8)))
    path = str(tmp_path / "mine.yaml")
    words = ["tasks", "new", "mine", "--from", str(tmp_path / "export.dat"), "--format", "csv", "-o", path, "--json"]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["0", "1"]
    assert 'rows: {file: "export.dat", format: csv}' in Path(path).read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("tasks new", "new: name the task, as in: deepthink tasks new my_task --from data.csv"),
        ("tasks new mine", "new: --from: name the file of its rows"),
        ("tasks new sst2 --from x.csv", "sst2: is a built-in task; choose another name"),
        ("tasks new a/b --from x.csv", "'a/b': is not a valid name of a task"),
        ("tasks new mine --from gone.csv -o {folder}/mine.txt", "a task file ends with .yaml"),
        ("tasks new mine --from gone.csv -o {folder}/mine.yaml", "gone.csv: no such file"),
        ("tasks new mine --from - -o {folder}/mine.yaml", "--from -: the task file names the file of its rows"),
        ("tasks sst2 --from x.csv", "--from: only for a new task, as in: deepthink tasks new my_task --from data.csv"),
    ],
)
def test_a_wrong_command_is_named(tmp_path: Path, words: str, reason: str, capsys: Captured) -> None:
    assert run(words.format(folder=tmp_path).split()) == 2
    assert reason in capsys.readouterr().err
