"""The paper's figures are entered as printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured, json_of, output
from helpers.synthetic import classic, curve, dev, mmlu, report, write

from deepthink_cli.plugins.paper.published import Cell, published
from deepthink_cli.report.registry import markdown

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


@pytest.fixture
def both(tmp_path: Path) -> str:
    return str(write(tmp_path / "both", [*classic([0.1, 0.01], count=2)]))


def test_the_papers_figures_are_shown_beside_those_of_the_run(both: str, capsys: Captured) -> None:
    report = json_of(capsys, "report", both, "--published", "--json")
    by_task = {row["task"]: row for row in report["rows"]}
    assert (by_task["sst2"]["paper_icl"], by_task["sst2"]["paper_thinking"]) == (0.579, 0.857)
    assert (by_task["classic"]["paper_icl"], by_task["classic"]["paper_table"]) == (0.418, 1)
    assert any("another harness" in line for line in report["footnotes"])
    assert "paper: ICL" in output(capsys, "report", both, "--published")
    assert "paper: ICL" not in output(capsys, "report", both)


def test_a_run_with_dev_rows_is_compared_with_the_half_of_table_1_with_them(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "dev", [*curve([50, 60]), *dev([50, 60], 0, 0.01)])
    (row,) = json_of(capsys, "report", folder, "--published", "--json")["rows"]
    assert (row["paper_icl"], row["paper_thinking"]) == (0.779, 0.881)


def test_a_mean_over_other_tasks_than_the_papers_says_so(tmp_path: Path, capsys: Captured) -> None:
    jobs = [
        curve([30, 40], {"groups": row.groups}, task=row.setting.task, model="EleutherAI/pythia-70m") for row in mmlu()
    ]
    folder = write(tmp_path / "some", [row for job in jobs for row in job])
    out = " ".join(output(capsys, "report", folder, "--published").split())
    assert "mmlu is a mean of 57 tasks there, of 12 here" in out
    assert "Table 3; means of ten seeds" in out
    other = write(tmp_path / "other", curve([50, 60], model="my/model"))
    assert "The paper has no figures for these models and tasks" in output(capsys, "report", other, "--published")


def test_a_report_in_python_has_them_as_the_command_does(both: str, capsys: Captured) -> None:
    page = report([Path(both)], iteration=3, published=True).page
    assert output(capsys, "report", both, "--at", "3", "--published", "--output-format", "markdown") == markdown(page)


def test_the_rows_of_a_table_have_as_many_cells_with_them(both: str, capsys: Captured) -> None:
    out = output(capsys, "report", both, "--output-format", "latex", "--published")
    assert len({line.count("&") for line in out.splitlines() if " & " in line}) == 1


def test_they_load_no_model_library(both: str) -> None:
    used: set[str] = modules_after(["report", both, "--published"])
    assert not used & (HEAVY - {"scipy", "pandas", "pyarrow"})
