"""A task's memory reads rows with the template's fields and rows in the columns of the task's data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_rows
from helpers.said import Captured, json_of, rows_of
from helpers.tiny import reviews, tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.data.examples import read_queries
from deepthink_cli.data.source import Row, RowSource
from deepthink_cli.errors import InputError
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.items import TaskColumns


def converted(name: str, fields: dict[str, Any], labelled: bool = True) -> dict[str, Any]:
    task = find_task(name)
    columns = TaskColumns(task.prompt, tuple(task.labels or ()), lambda: task)
    return columns(Row(fields, "rows.csv:7"), labelled).fields


def refusal(name: str, fields: dict[str, Any], labelled: bool = True) -> str:
    with pytest.raises(InputError) as caught:
        converted(name, fields, labelled)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("sst2", {"sentence": "a quiet film ", "label": 1, "idx": 0}, {"text": "a quiet film", "label": "positive"}),
        ("sst2", {"sentence": "a film", "label": "0"}, {"text": "a film", "label": "negative"}),
        ("sst2", {"sentence": "a film", "label": "negative"}, {"text": "a film", "label": "negative"}),
        ("agnews", {"text": "a ferry", "label": 2}, {"text": "a ferry", "label": "Business"}),
        ("trec", {"text": "Who?", "coarse_label": 3}, None),
        ("mmlu/astronomy", {"question": "Why?", "choices": list("abcd"), "answer": 2}, {"answer": "c"}),
    ],
)
def test_a_row_of_the_data_set_is_read_with_its_label(
    name: str, row: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert converted(name, row).items() >= (expected or {"text": "Who?"}).items()


def test_a_row_of_the_data_set_brings_its_candidates() -> None:
    row = {"question": "Why?", "choices": ["a", "b", "c", "d"]}
    assert converted("mmlu/astronomy", row, labelled=False) == {"question": "Why?", "candidates": list("abcd")}


def test_a_row_without_a_label_can_be_labelled() -> None:
    assert converted("sst2", {"sentence": "a film", "label": -1}, labelled=False) == {"text": "a film"}
    assert refusal("sst2", {"sentence": "a film", "label": -1}) == "rows.csv:7: does not fit task sst2: no answer"


def test_a_row_that_fits_both_is_read_by_the_templates_fields() -> None:
    row = {"text": "by the template", "sentence": "by the task", "label": "positive"}
    assert converted("sst2", row) == row


def test_a_row_that_fits_neither_names_both() -> None:
    assert refusal("sst2", {"review": "a film", "label": 1}) == (
        "rows.csv:7: has neither the template's fields (text) nor the columns of task sst2 (sentence); "
        "the row has review, label"
    )


def test_a_label_that_the_task_does_not_have_is_refused() -> None:
    assert refusal("agnews", {"text": "a", "label": 9}).endswith("does not fit task agnews: the answer is no candidate")


def test_a_template_may_call_its_only_text_field_otherwise(tmp_path: Path) -> None:
    from deepthink_cli.data.template import Template

    task, template = find_task("sst2"), Template("Film: {film}\n{kind}")
    columns = TaskColumns(template, ("negative", "positive"), lambda: task)
    rows = write_rows(tmp_path / "rows.jsonl", [{"sentence": "a film", "label": 1}])
    (query,) = read_queries(RowSource(str(rows), convert=columns), template, columns.labels, labelled=True)
    assert (query.text, query.gold, query.fields) == ("a film", "positive", {"sentence": "a film", "label": 1})


@pytest.fixture
def sst2(tmp_path: Path, models: Models) -> Path:
    """A memory of the built-in task, made from a data directory."""
    rows = [{"sentence": row["body"], "label": row["kind"], "idx": n} for n, row in enumerate(reviews("play", 20))]
    for split in ("train", "validation"):
        (tmp_path / "data" / "sst2").mkdir(parents=True, exist_ok=True)
        write_rows(tmp_path / "data" / "sst2" / f"{split}.jsonl", rows[:12] if split == "train" else rows[12:])
    memory = tmp_path / "sst2.safetensors"
    words = f"think --task sst2 --shots 2 -q --data-dir {tmp_path / 'data'} -m {models('llama')} -o {memory}"
    assert run(words.split()) == 0
    return memory


def test_predict_and_eval_take_the_columns_of_a_built_in_task(sst2: Path, capsys: Captured) -> None:
    raw = str(sst2.parent / "data" / "sst2" / "validation.jsonl")
    named = [json.loads(line) for line in Path(raw).read_text().splitlines()]
    words = ["negative", "positive"]
    plain = write_rows(
        sst2.parent / "plain.jsonl", [{"text": row["sentence"], "label": words[row["label"]]} for row in named]
    )
    labels, accuracies = [], []
    for rows in (raw, str(plain)):
        labels.append(rows_of(capsys, "predict", sst2, rows, "-q"))
        accuracies.append(json_of(capsys, "eval", sst2, rows, "-q", "--json")["results"])
    assert [row["scores"] for row in labels[0]] == [row["scores"] for row in labels[1]]
    assert [row["input"] for row in labels[0]] == named
    assert accuracies[0] == accuracies[1]


def test_demonstrations_of_a_file_may_have_the_tasks_columns(sst2: Path, models: Models) -> None:
    raw = str(sst2.parent / "data" / "sst2" / "train.jsonl")
    output = str(sst2.parent / "again.safetensors")
    assert run(["think", raw, "--task", "sst2", "-m", str(models("llama")), "-q", "-o", output]) == 0


def test_a_task_of_a_file_is_named_for_its_columns(tmp_path: Path, models: Models, capsys: Captured) -> None:
    task, data = tiny_task(tmp_path)
    memory, rows = tmp_path / "mem.safetensors", str(data / "tiny" / "test.jsonl")
    words = f"think --task {task} --data-dir {data} -q -m {models('llama')} -o {memory}"
    assert run(words.split()) == 0
    assert run(["predict", str(memory), rows, "-q", "--task", str(task)]) == 0
    assert json_of(capsys, "eval", memory, rows, "--task", task, "-q", "--json")["split"] == rows
    assert run(["predict", str(memory), rows, "-q", "--task", "agnews"]) == 2
    assert "run deepthink think again with --task agnews" in capsys.readouterr().err
    assert run(["predict", str(memory), rows, "-q"]) == 2
    assert "for the columns of task tiny, name its file with --task" in capsys.readouterr().err
