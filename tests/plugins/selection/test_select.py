"""The workflow of `deepthink select`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import REVIEWS, TEMPLATE, Models, write_rows
from helpers.tiny import tiny_task

from deepthink_cli.data.examples import read_demonstrations
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Note, Warn
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.selection.command import queries_of_file, write_scores
from deepthink_cli.selection.choice import select, write_selection
from deepthink_cli.selection.options import SelectOptions
from deepthink_cli.selection.pool import PoolRows, pool_of_file
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.rows import pool_of_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import evaluation_set

ROWS: list[dict[str, object]] = [
    {"id": number, "review": f"{text} {number}", "sentiment": label} for number, (text, label) in enumerate(REVIEWS * 5)
]


@pytest.fixture
def pool(tmp_path: Path) -> PoolRows:
    """Twenty reviews, with a field that the template does not use."""
    return pool_of_file(str(write_rows(tmp_path / "pool.jsonl", ROWS)), TEMPLATE)


@pytest.fixture
def model(models: Models) -> ModelOptions:
    """A random tiny Llama."""
    return ModelOptions(model=str(models("llama")))


def test_chosen_rows_are_written_as_they_were(pool: PoolRows, tmp_path: Path) -> None:
    result = select(pool, SelectOptions(demos_by="stratified", shots=6, seed=3))
    write_selection(result, tmp_path / "demos.jsonl")
    written = [json.loads(line) for line in (tmp_path / "demos.jsonl").read_text().splitlines()]
    assert written == [ROWS[place] for place in result.places]
    demonstrations = read_demonstrations(str(tmp_path / "demos.jsonl"), TEMPLATE)
    assert demonstrations.examples == result.demonstrations.examples


def test_rows_that_are_left_out_are_told(pool: PoolRows, tmp_path: Path) -> None:
    events: list[Event] = []
    rows = pool_of_file(str(write_rows(tmp_path / "twice.jsonl", ROWS + ROWS[:2])), TEMPLATE)
    result = select(rows, SelectOptions(demos_by="random", shots=4, pool_size=10), tell=events.append)
    assert events == [Note(f"{rows.name}: 2 rows left out: identical to an earlier row")]
    assert result.selected.pool_rows == 10
    assert result.as_json()["set_aside"] == {"identical to an earlier row": 2, "not in the sample of the pool": 10}


def test_every_row_of_the_pool_has_a_line_in_the_scores(pool: PoolRows, tmp_path: Path) -> None:
    result = select(pool, SelectOptions(demos_by="random", shots=3, pool_size=5))
    write_scores(result, tmp_path / "scores.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows] == list(range(20))
    assert [row["label"] for row in rows] == [row["sentiment"] for row in ROWS]
    chosen = {row["chosen"]: row["index"] for row in rows if row["chosen"] is not None}
    assert tuple(chosen[number] for number in range(3)) == result.places
    assert sum("set_aside" in row for row in rows) == 15


def test_a_missing_label_is_a_warning(pool: PoolRows) -> None:
    events: list[Event] = []
    select(pool, SelectOptions(demos_by="first", shots=1), tell=events.append)
    assert events == [
        Warn(
            "no row with the label negative was chosen: give all to deepthink think labels (a task has its own), "
            "or use balance"
        )
    ]


def test_queries_that_the_task_evaluates_are_refused(tmp_path: Path) -> None:
    path, data = tiny_task(tmp_path)
    evaluated = evaluation_set(find_task(str(path)), "paper", Source(data))
    pool = pool_of_task(evaluated.task, evaluated)
    rows = write_rows(tmp_path / "queries.jsonl", [{"text": "a new film"}, {"text": next(iter(evaluated)).text}])
    with pytest.raises(InputError, match=r"for .*queries.jsonl:2: in split test, which task tiny evaluates"):
        queries_of_file(str(rows), pool)
