"""The paper's figures are entered as printed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from deepthink_cli.plugins.paper.published import Cell, Published, published

CLASSIC = ("sst2", "sst5", "trec", "mr", "agnews")


def test_every_cell_of_the_three_tables_is_there() -> None:
    cells = list(published().cells())
    counts = {number: sum(cell.table == number for cell in cells) for number in (1, 2, 3)}
    assert counts == {1: 15 * 6, 2: 8 * 2 * 6, 3: 7 * 2 * 2}
    assert {cell.seeds for cell in cells} == {10}


def test_printed_averages_are_the_means_of_their_cells() -> None:
    """Within the rounding of the cells: no exception among the 31 rows; the farthest is 0.04 off."""
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for cell in published().cells():
        rows.setdefault((cell.table, cell.dev, cell.model, cell.method), {})[cell.task] = cell.accuracy
    averaged = [row for row in rows.values() if "average" in row]
    errors = [abs(sum(row[task] for task in CLASSIC) / 5 - row["average"]) for row in averaged]
    assert len(errors) == 31
    assert max(errors) == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("model", "task", "dev", "figures"),
    [
        ("openai-community/gpt2-large", "sst2", False, (57.9, 85.7)),
        ("gpt2-large", "sst2", True, (77.9, 88.1)),
        ("gpt2-xl", "classic", False, (51.9, 72.5)),
        ("GPT2-XL", "average", True, (51.9, 72.5)),
        ("facebook/opt-2.7b", "rotten_tomatoes", False, (86.2, 89.0)),
        ("meta-llama/Llama-2-13b-hf", "mmlu", False, (45.1, 47.6)),
        ("EleutherAI/pythia-12b", "bbh", True, (41.1, 45.3)),
    ],
)
def test_a_figure_is_found_by_any_name(model: str, task: str, dev: bool, figures: tuple[float, float]) -> None:
    plain, ours = published().find(model, task, dev)
    assert (plain.accuracy, ours.accuracy) == figures


@pytest.mark.parametrize(("model", "task"), [("gpt2", "sst2"), ("gpt2-large", "mmlu"), ("my/gpt2-large", "sst2")])
def test_what_the_paper_does_not_have_is_not_found(model: str, task: str) -> None:
    assert published().find(model, task, dev=False) == (None, None)


def test_the_baselines_of_another_harness_say_so() -> None:
    table: list[Cell] = [cell for cell in published().cells() if cell.table == 1 and cell.dev is False]
    foreign = {cell.method for cell in table if "another harness" in (cell.note or "")}
    assert len(foreign) == 11
    assert {cell.method for cell in table} - foreign == {"Deep-Thinking"}


def test_means_know_their_number_of_tasks() -> None:
    assert [published().tasks_of_mean(name) for name in ("classic", "mmlu", "bbh", "sst2")] == [5, 57, 23, None]


@pytest.mark.parametrize("row", [{"accuracy": [1.0, 2.0]}, {"model": "x"}, {"note": "x"}, {"accuracy": [101.0]}])
def test_a_wrong_entry_is_refused(row: dict[str, Any]) -> None:
    entry = {"model": "m", "method": "ICL", "accuracy": [50.0], **row}
    table = {"table": 9, "columns": ["t"], "seeds": 1, "rows": [entry]}
    with pytest.raises(ValidationError):
        Published.model_validate(
            {"source": "", "models": {"m": []}, "tasks": {"t": []}, "means": {}, "tables": [table]}
        )
