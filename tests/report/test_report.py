"""The report on the command line: the same cells in every format, with every footnote."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured, json_of, output
from helpers.synthetic import THREE, classic, curve, dev, mmlu, seeds, write

from deepthink_cli.cli.main import run


@pytest.fixture
def three(tmp_path: Path) -> str:
    return str(write(tmp_path / "three", seeds(THREE)))


@pytest.fixture
def both(tmp_path: Path) -> str:
    return str(write(tmp_path / "both", [*classic([0.1, 0.01], count=2)]))


def spaced(line: str) -> str:
    """A line with single spaces."""
    return " ".join(line.split())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_terminal_shows_a_table_a_legend_and_the_setting(three: str, capsys: Captured) -> None:
    out = output(capsys, "report", three, "--details")
    source, *title, _, head, row = out.splitlines()[:6]
    rest = out.splitlines()[6:]
    assert source.endswith("three:")
    assert " ".join(title) == (
        "openai-community/gpt2-large, float32, protocol paper, continued positions, momentum 0, eta 0.01"
    )
    assert spaced(head) == "task seeds T ICL Deep-Thinking difference 95 % interval p McNemar oracle"
    assert spaced(row) == "sst2 3 3 60.0 ± 10.0 65.0 ± 4.6 +5.0 -8.8 to +18.8 0.500 2 / 0 68.7 ± 10.3"
    legend = " ".join(rest)
    assert "so few seeds cannot give less than 0.250" in legend
    assert "a bound and not a result" in legend


def test_by_default_a_report_fits_a_screen_of_80_columns(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    methods = [seeds(THREE, sampling=name, pool_size=9, balanced=False) for name in "abc"]
    out = output(capsys, "report", write(Path("run"), [row for rows in methods for row in rows]))
    assert len(out.splitlines()) <= 30
    assert max(map(len, out.splitlines())) <= 80
    assert "method T ICL Deep-Thinking difference 95 % interval" in map(spaced, out.splitlines())
    assert "over 3 seeds" in out
    assert "McNemar" in output(capsys, "report", "run", "--details").split("ICL:")[0]


def test_tables_are_never_cut(both: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert "…" not in output(capsys, "report", both)


def test_markdown_has_aligned_columns(three: str, capsys: Captured) -> None:
    out = output(capsys, "report", three, "--output-format", "markdown")
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    assert [set(cell) for cell in cells(table[1])][:2] == [{"-"}, {"-", ":"}]
    assert cells(table[2])[3:6] == ["60.0 ± 10.0", "65.0 ± 4.6", "+5.0"]


def test_csv_and_json_hold_the_same_numbers(three: str, capsys: Captured) -> None:
    (row,) = csv.DictReader(io.StringIO(output(capsys, "report", three, "--output-format", "csv")))
    (same,) = json_of(capsys, "report", three, "--json")["rows"]
    assert row == {name: "" if value is None else str(value) for name, value in same.items()}
    assert same["thinking_mean"] == pytest.approx(0.65)
    assert same["difference_low"] == pytest.approx(0.05 - 0.138311, abs=1e-6)
    assert (same["seeds"], same["iteration_median"], same["chosen_on_dev"]) == (3, 3, False)


def test_csv_and_json_hold_no_digits_that_the_data_do_not_support(tmp_path: Path, capsys: Captured) -> None:
    folder = str(write(tmp_path / "run", seeds([[60, 50, 52], [60, 50, 52], [70, 60, 61]])))
    (row,) = json_of(capsys, "report", folder, "--json")["rows"]
    assert (row["difference_mean"], row["thinking_mean"], row["icl_mean"]) == (-0.0833333, 0.55, 0.633333)
    assert all(len(repr(value)) <= 12 for value in row.values() if isinstance(value, float))


def test_equal_differences_have_no_interval(tmp_path: Path, capsys: Captured) -> None:
    folder = str(write(tmp_path / "run", seeds([[60, 57], [50, 47]])))
    out = output(capsys, "report", folder)
    assert "-3.0 to -3.0" not in out
    assert "No interval: all seeds have the same difference" in " ".join(out.split())
    (row,) = json_of(capsys, "report", folder, "--json")["rows"]
    assert (row["difference_low"], row["difference_high"]) == (None, None)


def test_large_groups_show_their_tasks_on_request(tmp_path: Path, capsys: Captured) -> None:
    folder = str(write(tmp_path / "mmlu", mmlu()))
    assert "mmlu/3 " not in output(capsys, "report", folder)
    out = output(capsys, "report", folder, "--all-tasks")
    assert "mmlu/3 " in out
    assert "mmlu (mean of 12)" in out


def test_dev_choices_show_their_median_and_range(tmp_path: Path, capsys: Captured) -> None:
    rows = [
        *seeds([[50, 60, 70]] * 3),
        *dev([50, 60, 70], 0, 0.01),
        *dev([50, 60, 55], 1, 0.01),
        *dev([50, 60, 70], 2, 0.01),
    ]
    out = output(capsys, "report", str(write(tmp_path / "dev", rows)))
    assert "3 (2 to 3)" in out
    assert "at the T that each seed's own dev rows choose" in spaced(out)
    assert "Deep-Thinking: at T = 2" in output(capsys, "report", tmp_path / "dev", "--at", "2")


def test_columns_without_a_figure_are_left_out(tmp_path: Path, capsys: Captured) -> None:
    out = output(capsys, "report", str(write(tmp_path / "one", curve([50, 60]))), "--details")
    assert "task seeds T ICL Deep-Thinking difference McNemar oracle" in map(spaced, out.splitlines())


def test_incomplete_jobs_are_named_in_every_format(tmp_path: Path, capsys: Captured) -> None:
    folder = str(write(tmp_path / "cut", [*seeds(THREE), *curve([50], seed=3)]))
    for format in ("terminal", "markdown", "json"):
        assert "sst2, seed 3: no T = 2, 3" in spaced(output(capsys, "report", folder, "--output-format", format))
    assert run(["report", folder, "--output-format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert "seed 3" not in out
    assert "sst2, seed 3: no T = 2, 3" in err


def test_several_runs_make_one_report(three: str, tmp_path: Path, capsys: Captured) -> None:
    other = str(write(tmp_path / "other", seeds(THREE, momentum=0.9)))
    out = output(capsys, "report", three, other)
    assert [line for line in out.splitlines() if line.startswith("momentum")] == ["momentum 0", "momentum 0.9"]


def test_a_report_goes_to_a_file(three: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "report.md"
    assert run(["report", three, "--output-format", "markdown", "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"wrote {path}\n")
    assert path.read_text() == output(capsys, "report", three, "--output-format", "markdown")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "RUN nowhere: no such folder; give the folder of a deepthink run"),
        (["."], ".: no results.jsonl in it; give the folder of a deepthink run"),
        (["empty"], "RUN empty: results.jsonl has no rows yet; let the run finish a job first"),
        (["run", "--at", "9"], "--at 9: the run has iterations 1 to 3; name one of them"),
        (["run", "--at", "last"], "--at last: a whole number from 1, as in 5"),
        (["run", "--json", "--output-format", "csv"], "--json and --output-format csv: two formats; give one of them"),
        (["run", "-o", "no/where"], "-o no/where: there is no directory"),
        (["run", "-o", "a.xlsx"], "-o a.xlsx: unknown format '.xlsx'; end the name in one of .txt, .md, .csv, .json"),
        (["devonly"], "devonly: no seed has test rows at the T to report"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    arguments: list[str], message: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("run"), seeds(THREE))
    write(Path("empty"), [])
    write(Path("devonly"), dev([50, 60], 0, 0.01))
    assert run(["report", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"deepthink: {message}" in err


def test_a_report_loads_no_model_library(three: str) -> None:
    used: set[str] = modules_after(["report", three])
    assert not used & (HEAVY - {"scipy", "pandas", "pyarrow"})


def test_every_export_says_how_many_rows_shots_and_seeds_it_rests_on(tmp_path: Path, capsys: Captured) -> None:
    folder = str(write(tmp_path / "run", seeds([[50, 60], [50, 70]], limit=100)))
    (row,) = json_of(capsys, "report", folder, "--json")["rows"]
    assert (row["n"], row["limit"], row["shots"], row["seeds"]) == (100, 100, 8, 2)
    (line,) = csv.DictReader(io.StringIO(output(capsys, "report", folder, "--output-format", "csv")))
    assert [line[name] for name in ("n", "limit", "shots", "seeds")] == ["100", "100", "8", "2"]
    out = output(capsys, "report", folder, "--output-format", "markdown")
    assert "- Inputs evaluated (samples: at most 100 a task): sst2 100\n" in out
    assert "- Demonstrations (shots): 8\n" in out


def test_two_seeds_have_no_median(tmp_path: Path, capsys: Captured) -> None:
    rows = [*seeds([[50, 60, 70]] * 2), *dev([50, 60, 70], 0, 0.01), *dev([50, 60, 55], 1, 0.01)]
    folder = str(write(tmp_path / "two", rows))
    assert " 3, 2 " in output(capsys, "report", folder)
    (row,) = json_of(capsys, "report", folder, "--json")["rows"]
    assert (row["iteration_median"], row["iteration_min"], row["iteration_max"]) == (None, 2, 3)
