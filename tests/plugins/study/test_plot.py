"""Figures: what they hold, where they go, and that the same run gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.imports import modules_after
from helpers.said import Captured, json_of
from helpers.synthetic import MODEL, THREE, classic, curve, dev, mmlu, seeds, write
from scipy.stats import sem
from scipy.stats import t as t_distribution

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import Result
from deepthink_cli.plugins.study.figures import DIFFERENCE, curves, differences_from_first, methods_of
from deepthink_cli.plugins.study.study import Origin
from deepthink_cli.report.figures import Panel, panels, with_gains
from deepthink_cli.report.job_results import jobs_of
from deepthink_cli.report.significance import Spread
from deepthink_cli.report.tables import summarize


def panels_of(rows: list[Result], tasks: bool = False) -> list[Panel]:
    return panels(jobs_of(rows), tasks)


def test_a_curve_is_the_mean_over_seeds_with_its_spread() -> None:
    (panel,) = panels_of(seeds(THREE))
    (drawn,) = panel.curves
    assert list(drawn.points) == [1, 2, 3]
    assert drawn.points[1] == Spread(pytest.approx(0.6), pytest.approx(0.1), 3)
    assert panel.majority == 0.5


def test_only_whole_seeds_are_drawn() -> None:
    (panel,) = panels_of([*seeds(THREE), *curve([10, 10], seed=3)])
    assert {spread.n for spread in panel.curves[0].points.values()} == {3}
    a, b, mean = panels_of([*seeds(THREE, task="a"), *seeds(THREE[:2], task="b")])
    assert [panel.curves[0].points[1].n for panel in (a, b, mean)] == [3, 2, 2]
    assert mean.curves[0].points[1].mean == pytest.approx(0.55)


def test_dev_rows_have_a_curve_of_their_own() -> None:
    (panel,) = panels_of([*curve([50, 60]), *dev([55, 70], 0, 0.01)])
    assert [(drawn.part, drawn.points[2].mean) for drawn in panel.curves] == [("test", 0.6), ("dev", 0.7)]


def test_large_groups_are_drawn_by_their_means() -> None:
    assert [panel.name for panel in panels_of(mmlu())] == ["mmlu/others", "mmlu/stem", "mmlu"]
    assert len(panels_of(mmlu(), tasks=True)) == 15
    assert panels_of(mmlu())[0].majority is None


def test_the_figure_says_what_lines_and_bands_are() -> None:
    figure = curves(panels_of([*classic([0.1, 0.01], 3), *classic([0.1], 3, part="dev", split="train")]))
    assert [axes.get_title() for axes in figure.axes][-2:] == ["agnews", "classic (mean of 5)"]
    (legend,) = figure.legends
    labels = ["eta 0.01", "eta 0.1", "on dev rows", "T = 1 (plain ICL)", "majority class"]
    assert [text.get_text() for text in legend.get_texts()] == labels
    assert figure.get_supylabel() == "accuracy (%)"
    assert figure.get_supxlabel() == "iterations T\nmean of 3 seeds, band: ± 1 standard deviation"


def test_differences_are_those_of_the_report() -> None:
    rows = seeds(THREE)
    (panel,) = with_gains(panels_of(rows))
    (line,) = summarize(jobs_of(rows))
    gain = panel.curves[0].gains[3]
    assert gain == line.gain
    figure = curves([panel], DIFFERENCE)
    (drawn,) = [each for each in figure.axes[0].lines if len(each.get_xdata()) == 3]
    assert list(drawn.get_ydata()) == pytest.approx([0, 100 * (0.05 + 0.02 + 0.1) / 3, 5])
    assert figure.get_supylabel() == "accuracy less T = 1 (points)"
    assert figure.get_supxlabel().endswith("mean of 3 seeds, band: 95 % interval")
    assert "majority class" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_technique_is_drawn_against_plain_in_context_learning() -> None:
    plain, trained = seeds([[50, 60], [40, 41]]), seeds([[70], [80]], technique="ct-kv steps=200")
    drawn = with_gains(panels_of([*plain, *trained]))[0].curves
    assert [curve.gains[1].steps for curve in drawn] == [(0.0, 0.0), (0.2, 0.4)]
    alone = seeds([[70], [80]], technique="ct-kv steps=200")
    assert with_gains(panels_of(alone)) == []


def test_a_mean_of_one_task_is_not_drawn_beside_the_task() -> None:
    rows = [*curve([50, 60]), *curve([50], task="mr")]
    assert [panel.name for panel in panels_of(rows)] == ["sst2"]


def test_differences_need_rows_at_the_first_iteration(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", curve([50, 60])[1:])
    assert run(["plot", str(folder), "--difference"]) == 2
    assert "no seed has rows at every T, T = 1 included" in capsys.readouterr().err
    assert run(["plot", str(folder), "--difference", "--methods"]) == 2
    assert "--methods and --difference: two figures; give one of them" in capsys.readouterr().err
    assert run(["plot", str(write(tmp_path / "whole", seeds(THREE))), "--difference", "-q"]) == 0
    assert {path.name for path in (tmp_path / "whole").iterdir()} >= {"difference.png", "difference.svg"}


def test_one_seed_has_no_band_and_names_its_model() -> None:
    figure = curves(panels_of(curve([50, 60])))
    assert not figure.axes[0].collections
    assert figure.get_supxlabel() == "iterations T\none seed"
    assert figure.legends[0].get_texts()[0].get_text() == "gpt2-large, eta 0.01"


def test_the_title_counts_the_tasks_of_every_arm() -> None:
    rows = [*curve([50], task="a"), *curve([50], task="b"), *curve([60], task="a", model=MODEL + "r")]
    assert curves(panels_of(rows)).axes[-1].get_title() == "classic (mean of 1 to 2)"


def test_the_same_run_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    folder = write(tmp_path / "run", [*seeds(THREE), *seeds(THREE, eta=0.1)])
    names = [tmp_path / f"curve{suffix}" for suffix in (".png", ".svg", ".pdf")]
    arguments = ["plot", str(folder), *(word for name in names for word in ("-o", str(name)))]
    assert run(arguments) == 0
    first = [name.read_bytes() for name in names]
    assert [data[:4] for data in first] == [b"\x89PNG", b"<?xm", b"%PDF"]
    # A user's own settings, such as a larger font, must have no effect.
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30)
    assert run(arguments) == 0
    assert [name.read_bytes() for name in names] == first


def test_without_a_name_figures_are_written_beside_the_results(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", [*seeds(THREE), *curve([50], seed=3)])
    assert run(["plot", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "sst2, seed 3: no T = 2, 3" in err
    assert err.endswith(f"wrote {folder}/accuracy.png\nwrote {folder}/accuracy.svg\n")
    assert {path.name for path in folder.iterdir()} == {"results.jsonl", "accuracy.png", "accuracy.svg"}


def test_json_names_the_files_and_the_panels(tmp_path: Path, capsys: Captured) -> None:
    folder, file = write(tmp_path / "run", mmlu()), tmp_path / "curve.SVG"
    output = json_of(capsys, "plot", folder, "-o", file, "--json")
    assert output == {"files": [str(file)], "panels": ["mmlu/others", "mmlu/stem", "mmlu"]}
    assert file.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "RUN nowhere: no such folder"),
        (["run", "-o", "curve.gif"], "-o curve.gif: unknown kind of figure '.gif'; end the name in .png, .svg or .pdf"),
        (["torn", "-o", "a.png"], "RUN torn: no seed has rows at every T"),
    ],
)
def test_bad_input_is_named_and_nothing_is_drawn(
    arguments: list[str], message: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("run"), seeds(THREE))
    write(Path("torn"), [*curve([50]), *curve([50, 60], seed=1)[1:]])
    assert run(["plot", *arguments]) == 2
    assert f"deepthink: {message}" in capsys.readouterr().err
    assert not [*tmp_path.rglob("*.png")]


def test_a_figure_needs_no_window_and_no_model_library(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", curve([50, 60]))
    used = modules_after(["plot", str(folder)])
    assert "matplotlib" in used
    assert not used & {"torch", "transformers", "tkinter"}


def test_methods_are_drawn_less_the_first_one(tmp_path: Path) -> None:
    arms = [seeds(THREE, sampling=name, pool_size=9, balanced=False) for name in ("random", "herding")]
    folder = write(tmp_path / "run", [row for arm in arms for row in arm])
    assert run(["plot", str(folder), "--methods", "-q"]) == 0
    assert (folder / "methods.png").stat().st_size > 10_000
    assert (folder / "methods.svg").read_text().startswith("<?xml")


def test_a_method_is_an_arm_or_plain_in_context_learning_but_no_first_reading_of_a_technique() -> None:
    plain = [
        *seeds([[50, 60]] * 2),
        *[one for seed in range(2) for one in curve([68], seed=seed, technique="ct-kv steps=25")],
    ]
    repeated = seeds([[55, 58]] * 2, technique="repeat-2")
    without = methods_of(jobs_of([row for row in [*plain, *repeated] if row.setting.technique]))
    assert set(without) == {"ct-kv steps=25", "repeat-2, T"}
    every = methods_of(jobs_of([*plain, *repeated]))
    assert every["T = 1"] == [0.5, 0.5]


def test_a_dot_is_the_mean_difference_from_the_first_method_with_students_interval() -> None:
    (found,) = differences_from_first({"random": [0.5, 0.6, 0.7], "herding": [0.6, 0.6, 0.9]})
    low, high = t_distribution.interval(0.95, 2, loc=0.1, scale=sem([0.1, 0.0, 0.2]))
    assert (found.name, found.mean) == ("herding", pytest.approx(0.1))
    assert found.interval == pytest.approx((low, high))


def test_a_figure_of_one_method_is_refused(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "one", curve([50, 60]))
    assert run(["plot", str(folder), "--methods"]) == 2
    assert "there is one method only; compare several with deepthink run --demos-by" in capsys.readouterr().err


def test_the_plot_takes_the_conditions_of_a_report(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", [*seeds(THREE, eta=0.1), *seeds(THREE, task="mr")])
    assert json_of(capsys, "plot", folder, "--where", "eta=0.1", "--json")["panels"] == ["sst2"]
    assert run(["plot", str(folder), "--where", "eta=2"]) == 2
    assert "no row has it; eta is " in capsys.readouterr().err


def test_a_study_has_a_figure_of_its_own(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", seeds(THREE))
    study = tmp_path / "films.yaml"
    study.write_text("tasks: sst2\nmodels: gpt2\nseeds: 3\nfigure: {kind: curves, difference: true}\n")
    Origin.of(str(study), None).write(folder)
    assert json_of(capsys, "plot", folder, "--json") == {
        "files": [str(folder / "figure.png"), str(folder / "figure.svg")],
        "panels": ["curves"],
    }
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    study.rename(tmp_path / "moved.yaml")
    assert run(["plot", str(folder)]) == 0
    note = f"{folder}: taken as a run, because its study cannot be read: {study}: no such study file"
    assert note in capsys.readouterr().err
