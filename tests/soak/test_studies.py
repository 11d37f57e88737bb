"""The studies of the package: each runs at its small scale and draws its figure; the suite runs one of each figure."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Soak
from helpers.task_rows import write_task_rows

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.study import open_study, packaged

STUDIES = [name for name in packaged() if name.startswith(("paper/", "ablation/"))]
SHORT = [
    *("paper/mmlu-categories", "paper/official-recipe", "paper/table3", "paper/shots", "paper/seeds-and-orders"),
    "ablation/orders",
]


def test_the_suite_draws_every_kind_of_figure() -> None:
    assert {kind(name) for name in SHORT} == {kind(name) for name in STUDIES}


def kind(name: str) -> str:
    """What a study draws."""
    figure = open_study(name, "small").study.figure
    assert figure is not None
    return figure.kind


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_at_its_small_scale_and_draws_its_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, soak: Soak
) -> None:
    if name not in SHORT and not soak.long:
        pytest.skip("long form only: another study has the same figure")
    tasks = open_study(name, "small").study.tasks
    data = write_task_rows(tmp_path / "data", tasks)
    out, cache = str(tmp_path / "out"), str(tmp_path / "cache")
    words = ["--scale", "small", "--data-dir", str(data), "--limit", "4"]
    assert run(["study", "run", name, *words, "--out", out, "--cache", cache, "--quiet"]) == 0
    assert run(["study", "plot", name, "--scale", "small", "--from", out]) == 0
    assert "rows are there" not in capsys.readouterr().err  # the study is complete
    assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "figure.svg").is_file()
    assert run(["study", "report", name, "--scale", "small", "--from", out, "--published"]) == 0
    assert "pocket" in capsys.readouterr().out
