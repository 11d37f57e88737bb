"""What a row is compared with: T = 1 of the same demonstrations, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.said import Captured, json_of, output
from helpers.synthetic import N, curve, row, seeds, write

from deepthink_cli.experiments.results import Result
from deepthink_cli.report.figures import panels, with_gains
from deepthink_cli.report.job_results import jobs_of, read_jobs
from deepthink_cli.report.page import Report
from deepthink_cli.report.tables import summarize

pytestmark = pytest.mark.plugins  # techniques and methods of choice that are named

TUNED = "ct-kv steps=25"


def whole(count: int = 2) -> list[Result]:
    """Deep-Thinking, ct-kv and repeat-2 with the same demonstrations."""
    return [
        *seeds([[50, 60]] * count),
        *[one for seed in range(count) for one in curve([68], seed=seed, technique=TUNED)],
        *seeds([[55, 58]] * count, technique="repeat-2"),
    ]


def records(folder: Path, capsys: Captured, *where: str) -> dict[str, Any]:
    """The rows of a report by technique."""
    return {
        line["technique"]: line
        for line in json_of(
            capsys, "report", folder, "--json", *(word for each in where for word in ("--where", each))
        )["rows"]
    }


def test_a_filter_chooses_what_is_shown_and_not_what_it_is_compared_with(tmp_path: Path, capsys: Captured) -> None:
    folder = write(tmp_path / "run", whole())
    every = records(folder, capsys)
    assert (every[TUNED]["icl_mean"], every[TUNED]["difference_mean"]) == (0.5, 0.18)
    assert records(folder, capsys, f"technique={TUNED}") == {TUNED: every[TUNED]}
    assert records(folder, capsys, "technique=repeat-2") == {"repeat-2": every["repeat-2"]}
    assert records(folder, capsys, "technique=none", "iteration=2")[None]["difference_mean"] == 0.1


def test_a_technique_without_rows_of_plain_in_context_learning_has_no_baseline(
    tmp_path: Path, capsys: Captured
) -> None:
    alone = [row for row in whole() if row.setting.technique]
    folder = write(tmp_path / "run", alone)
    for line in records(folder, capsys).values():
        missing = ("icl_mean", "icl_sd", "difference_mean", "difference_low", "wilcoxon_p", "mcnemar_better")
        assert [line[name] for name in missing] == [None] * 6
        assert line["thinking_mean"] in (0.68, 0.58)
    out = " ".join(output(capsys, "report", folder, "--details").split())
    assert "ct-kv steps=25 2 1 - 68.0 ± 0.0 - - " in out
    assert "No baseline, because there are no rows of plain in-context learning with the same demonstrations" in out
    assert "repeat deepthink run with --technique deep-thinking --at 1: ct-kv steps=25, sst2, seed 0, seed 1;" in out
    for format in ("markdown", "csv"):
        assert "No interval" not in output(capsys, "report", folder, "--output-format", format, "-q")


def test_a_run_without_t_1_has_no_baseline_and_says_what_to_run() -> None:
    report = Report("run", jobs_of([row for row in seeds([[50, 60]] * 2) if row.setting.iteration == 2]))
    assert [report.rows[0].plain, report.rows[0].gain] == [None, None]
    assert any(
        "no rows of T = 1 with the same demonstrations" in note and "--at 1:" in note for note in report.page.footnotes
    )


def test_seeds_without_a_baseline_are_not_in_a_row_that_has_some() -> None:
    rows = [*seeds([[50, 60]] * 2), *seeds([[55, 58]] * 3, technique="repeat-2")]
    jobs = jobs_of(rows)
    assert [(line.arm.technique, len(line.scores)) for line in summarize(jobs)] == [(None, 2), ("repeat-2", 2)]
    assert any("repeat-2, sst2, seed 2" in note for note in Report("run", jobs).page.footnotes)


@pytest.mark.parametrize(
    "other",
    [
        {"shots": 4},
        {"sampling": "random"},
        {"pool_size": 9, "balanced": False},
        {"calibration": "batch"},
        {"limit": 30},
    ],
)
def test_plain_rows_of_other_demonstrations_or_scores_are_no_baseline(other: dict[str, Any]) -> None:
    jobs = jobs_of([*curve([50, 60], **other), *curve([55, 58], technique="repeat-2")])
    assert {line.arm.technique: line.plain is None for line in summarize(jobs)} == {None: False, "repeat-2": True}


def test_demonstrations_that_did_not_fit_are_other_demonstrations() -> None:
    plain = curve([50, 60], {"shots_used": 6})
    assert summarize(jobs_of([*plain, *curve([55, 58], {"shots_used": 14}, technique="repeat-2")]))[1].plain is None
    assert summarize(jobs_of([*plain, *curve([55, 58], {"shots_used": 6}, technique="repeat-2")]))[1].plain is not None
    named = {"shots_used": 12, "plain_sha256": "other"}
    assert summarize(jobs_of([*plain, *curve([55, 58], named, technique="repeat-2")]))[1].plain is None
    tuned = curve([68], {"demonstrations_sha256": "x"}, demonstrations_sha256="x", technique=TUNED)
    assert summarize(jobs_of([*curve([50, 60]), *tuned]))[1].plain is None


def test_what_only_further_readings_depend_on_does_not_part_a_row_from_its_baseline() -> None:
    rows = [*curve([50, 60], eta=0.1, positions="restarted"), *curve([55, 58], technique="repeat-2", momentum=0.9)]
    (line,) = (line for line in summarize(jobs_of(rows)) if line.arm.technique)
    assert line.gain.steps == (0.08,)


def test_inputs_that_only_one_side_has_are_left_out_and_counted() -> None:
    plain = [place % 2 == 0 for place in range(N)]
    left = list(range(0, 20, 2))  # the plain row has all of these right
    changed = [place % 2 == 0 or place < 30 for place in range(N) if place not in left]
    longer = row(changed, {"unscored": left, "skipped": {"too long": 10}}, technique="repeat-2")
    jobs = jobs_of([row(plain), longer])
    line = summarize(jobs)[1]
    assert line.plain.mean == 40 / 90
    assert (line.thinking.mean, line.scores[0].changed[0]) == (55 / 90, 15)
    notes = Report("run", jobs).page.footnotes
    assert "Compared on the inputs that both have: repeat-2, sst2, seed 0 90 of 100" in notes
    (panel,) = with_gains(panels(jobs))
    assert panel.curves[1].gains[1].steps == (round(55 / 90 - 40 / 90, 12),)


def test_seeds_with_equal_demonstrations_in_equal_order_are_one(tmp_path: Path, capsys: Captured) -> None:
    rows = seeds([[50, 60]] * 6, demonstrations_sha256="same", sampling="first")
    folder = write(tmp_path / "run", rows)
    (line,) = records(folder, capsys).values()
    assert (line["seeds"], line["wilcoxon_p"]) == (1, None)
    note = (
        "in a mean if they are the same on all of its tasks: sst2, seed 0 = seed 1 = seed 2 = seed 3 = seed 4 = seed 5"
    )
    assert any(note in each for each in Report("run", jobs_of(rows)).page.footnotes)
    (panel,) = panels(jobs_of(rows))
    assert panel.curves[0].points[1].n == 1
    assert panel.curves[0].gains[2].wilcoxon_p is None


def test_seeds_are_two_in_a_mean_if_they_differ_on_one_task() -> None:
    same = seeds([[50, 60], [50, 60]], task="a", demonstrations_sha256="same")
    lines = summarize(jobs_of([*same, *seeds([[50, 60], [50, 61]], task="b")]))
    assert [len(line.scores) for line in lines] == [1, 2, 2]


def test_a_technique_that_reads_once_shows_no_eta(tmp_path: Path, capsys: Captured) -> None:
    rows = [
        *seeds([[50, 60]] * 2, eta=0.1),
        *seeds([[50, 61]] * 2, eta=0.01),
        *[one for seed in (0, 1) for one in curve([68], seed=seed, technique=TUNED, update="keys-only")],
    ]
    folder = write(tmp_path / "run", rows)
    (tuned,) = (line for line in summarize(read_jobs([folder])) if line.arm.technique)
    assert tuned.arm.label(["technique", "eta", "update", "momentum"]) == TUNED
    line = records(folder, capsys)[TUNED]
    assert [line[name] for name in ("eta", "eta_median", "eta_min")] == [None] * 3
    out = output(capsys, "report", folder)
    assert "eta chosen" not in out
    assert "eta 0.1, Deep-Thinking" in " ".join(out.split())
