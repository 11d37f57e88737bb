"""The paper's figures in a report: beside those of the run, with notes on how they differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured, json_of, output
from helpers.synthetic import classic, curve, dev, mmlu, report, write

from deepthink_cli.report.formats import markdown


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
    page = report([Path(both)], iteration=3, published=True)
    assert output(capsys, "report", both, "--at", "3", "--published", "--output-format", "markdown") == markdown(page)


def test_the_rows_of_a_table_have_as_many_cells_with_them(both: str, capsys: Captured) -> None:
    out = output(capsys, "report", both, "--output-format", "latex", "--published")
    assert len({line.count("&") for line in out.splitlines() if " & " in line}) == 1


def test_they_load_no_model_library(both: str) -> None:
    used: set[str] = modules_after(["report", both, "--published"])
    assert not used & (HEAVY - {"scipy", "pandas", "pyarrow"})
