"""The studies of the paper have plans, and the forms of its figures show what rows say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import synthetic
from helpers.said import Captured, json_of
from helpers.synthetic import curve, row, seeds, write

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.paper.compared import draw_lines, draw_violins
from deepthink_cli.plugins.paper.registry import Block, LinesOptions, TableOptions, ViolinsOptions
from deepthink_cli.plugins.paper.table import latex_table, lines_of
from deepthink_cli.plugins.study.study import Origin, open_study, packaged
from deepthink_cli.report.job_results import jobs_of

STUDIES = [name for name in packaged() if name.startswith("paper/")]
CLASSIC = ("sst2", "sst5", "trec", "mr", "agnews")


def test_every_table_and_figure_of_the_paper_has_a_study() -> None:
    figures = {"mmlu-categories", "shots", "seeds-and-orders", "eta"}
    wanted = {"table1", "table2", "table3", "official-recipe", *figures}
    assert {name.removeprefix("paper/") for name in STUDIES} == wanted


def test_the_official_recipe_has_the_ids_of_parts() -> None:
    assert open_study("paper/official-recipe").study.tokens == "parts"


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_a_plan(capsys: Captured, name: str) -> None:
    assert json_of(capsys, "study", "plan", name, "--no-probe", "--json")


def table(block: Block, **form: Any) -> list[tuple[str, list[float | None], list[float | None]]]:
    """The lines of a table of the synthetic classic tasks: labels, our means and the paper's figures, in percent."""
    jobs = jobs_of(synthetic.classic())
    lines = lines_of(
        TableOptions(kind="table", columns=[*CLASSIC, "classic"], **form), block, jobs, [*CLASSIC, "classic"]
    )
    means = [[None if cell is None else round(100 * cell.mean, 1) for cell in line.ours] for line in lines]
    return [(line.label, mean, list(line.paper)) for line, mean in zip(lines, means, strict=True)]


def test_a_table_has_the_papers_figures_beside_ours() -> None:
    (plain, ours, paper), (thinking, moved, of_thinking) = table(Block(iteration=5))
    assert (plain, thinking) == ("ICL", "Deep-Thinking, T = 5")
    assert paper == [57.9, 27.5, 30.3, 59.5, 33.6, 41.8]
    assert of_thinking == [85.7, 39.2, 54.2, 71.6, 72.9, 64.7]
    expected = {name: [] for name in CLASSIC}  # type: ignore[var-annotated]
    for each in synthetic.classic():
        if each.setting.iteration == 1:
            expected[each.setting.task].append(100 * each.accuracy)
    means = [sum(values) / len(values) for values in expected.values()]
    assert ours == pytest.approx([*means, sum(means) / 5], abs=0.06)
    assert moved != ours


def test_a_column_of_a_group_beside_its_tasks_is_their_average() -> None:
    form = TableOptions(kind="table", columns=[*CLASSIC, "classic"])
    text = latex_table(form, jobs_of(synthetic.classic()), "mine", "Mine")
    assert r"& \textbf{average} \\" in text
    assert "In parentheses: the paper's figures" in text


def test_a_model_that_the_paper_does_not_have_gets_no_figures_of_it() -> None:
    text = latex_table(TableOptions(kind="table"), jobs_of(seeds(synthetic.THREE, model="mine")), "mine", "Mine")
    assert "paper" not in text


def test_ways_of_choosing_keep_the_order_of_the_rows_and_some_have_deep_thinking() -> None:
    chosen = {"balanced": False, "pool_size": 100}
    rows = [each for name in ("random", "herding", "cal") for each in curve([40, 50], sampling=name, **chosen)]
    form = TableOptions(kind="table", thinking=["random"])
    lines = lines_of(form, Block(iteration=2), jobs_of(rows), ["sst2"])
    assert [line.label for line in lines] == ["random, ICL", "herding, ICL", "cal, ICL", "random, Deep-Thinking, T = 2"]
    assert [line.paper[0] for line in lines] == [57.9, 62.0, 59.3, 85.7]
    only = lines_of(form, Block(iteration=2, methods=["random"]), jobs_of(rows), ["sst2"])
    assert [line.label for line in only] == ["random, ICL", "random, Deep-Thinking, T = 2"]


def test_lines_are_the_mean_over_seeds_for_each_number_of_demonstrations() -> None:
    rights = [[40, 50], [60, 90]]
    rows = [row for count in (2, 8) for row in seeds(rights, shots=count)]
    (axes,) = draw_lines(LinesOptions(kind="lines"), jobs_of(rows)).axes
    plain, thinking = axes.lines
    assert list(plain.get_xdata()) == [2, 8]
    assert list(plain.get_ydata()) == [50, 50]
    assert list(thinking.get_ydata()) == [70, 70]


def test_violins_part_seeds_from_orders() -> None:
    rows = [*seeds([[40, 50], [60, 90]])]
    rows += [
        each for order in (0, 1, 2) for each in curve([45, 55], order_seed=order, demonstrations_sha256=f"{order}")
    ]
    titles = [axes.get_title() for axes in draw_violins(ViolinsOptions(kind="violins"), jobs_of(rows)).axes]
    assert [title.splitlines()[0] for title in titles] == ["sst2, 2 random seeds", "sst2, 3 random orders"]


def test_a_study_without_rows_to_draw_says_so(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "rows", [row(50, iteration=2)])
    Origin(study="paper/seeds-and-orders").write(folder)
    assert run(["plot", str(folder)]) == 2
    assert "no job has rows at T = 1 and at T = 2 yet" in capsys.readouterr().err
    with pytest.raises(InputError, match="no rows of its columns"):
        latex_table(TableOptions(kind="table", columns=["mmlu"]), jobs_of(curve([50, 60])), "mine", "Mine")


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("{kind: pie}", "pie"),
        ("{kind: table, column: [sst2]}", "no such field"),
        ("{kind: bars, iteration: 0}", "iteration"),
    ],
)
def test_a_wrong_figure_is_named_by_file_and_line(tmp_path: Path, capsys: Captured, figure: str, message: str) -> None:
    study = tmp_path / "mine.yaml"
    study.write_text(f"tasks: [sst2]\nfigure: {figure}\n", encoding="utf-8")
    assert run(["study", "plan", str(study)]) == 2
    err = capsys.readouterr().err
    assert "mine.yaml:2" in err
    assert message in err


def test_the_table_of_a_study_is_latex_in_the_layout_of_the_paper(tmp_path: Path, capsys: Captured) -> None:
    chosen = {"sampling": "random", "pool_size": 100, "balanced": False}
    rows = [*seeds([[40, 60], [50, 60]], task="sst2", **chosen), *curve([70, 60], task="mr", **chosen)]
    folder = write(tmp_path / "rows", rows)
    Origin(study="paper/table1").write(folder)
    assert run(["plot", str(folder), "-o", str(tmp_path / "t1.png")]) == 2
    assert "the study has a table; end the name in .tex" in capsys.readouterr().err
    assert run(["plot", str(folder), "-o", str(tmp_path / "t1.tex")]) == 0
    text = (tmp_path / "t1.tex").read_text()
    assert r"\textbf{Method} & \textbf{SST-2} & \textbf{MR}" in text
    assert r"\multicolumn{4}{c}{\itshape In-context learning without a dev set} \\" in text
    assert r"ICL & 45.0 {\scriptsize(57.9)} & \textbf{70.0} {\scriptsize(59.5)}" in text
    assert r"Deep-Thinking, T = 2 & \textbf{60.0} {\scriptsize(85.7)} & 60.0" in text
    assert r"\caption{Ways of choosing demonstrations, and Deep-Thinking. Accuracy in percent" in text
    assert text.rstrip().endswith("\\label{tab:table1}\n\\end{table*}")
    capsys.readouterr()
    (folder / "study.json").unlink()
    assert run(["plot", str(folder), "-o", str(tmp_path / "t.tex")]) == 2
    assert "unknown kind of figure '.tex'" in capsys.readouterr().err
