"""The studies of the package: each runs at its small scale and draws its figure; the suite runs some."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.said import Captured, output
from helpers.soak import with_soak
from helpers.task_rows import write_task_rows

from deepthink_cli.cli.main import run
from deepthink_cli.plugins.study.study import open_study, packaged

STUDIES = [name for name in packaged() if name.startswith(("paper/", "ablation/"))]
SHORT = ["paper/table3", "ablation/schedules"]


@pytest.mark.parametrize("name", with_soak(STUDIES, SHORT))
def test_a_study_runs_at_its_small_scale_and_draws_its_figure(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tasks = open_study(name, "small").study.tasks
    data = write_task_rows(tmp_path / "data", tasks)
    out = str(tmp_path / "out")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["--scale", "small", "--data-dir", str(data), "--limit", "4"]
    assert run(["study", "run", name, *words, "-o", out, "--quiet"]) == 0
    assert run(["plot", out]) == 0
    assert "rows are there" not in capsys.readouterr().err  # the study is complete
    if name.startswith("paper/table"):
        assert r"\begin{tabular}" in (tmp_path / "out" / "figure.tex").read_text(encoding="utf-8")
    else:
        assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "out" / "figure.svg").is_file()
    assert "pocket" in output(capsys, "report", out, "--published")
