"""The table and the pictures of README.md: read from committed measurements, with the statistics of the evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.small_evidence import write_grid

from benchmarks.evidence.cells import compare_chosen
from benchmarks.evidence.load import read_evidence
from benchmarks.front_page import README, RECORD, accuracies, chosen_in, costs, times, with_table


def test_the_times_are_those_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    harness, official, deepthink = times(record)
    assert [each.system for each in (harness, official, deepthink)] == [
        *("lm-evaluation-harness", "official way", "deepthink")
    ]
    assert list(deepthink.seconds) == [0, 128, 512, 1536]
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    (row,) = (row for row in rows if (row["L"], row["c"]) == (512, 2))
    of_row = row["harness"], row["official"], row["deepthink"]
    assert (harness.seconds[512], official.seconds[512], deepthink.seconds[512]) == of_row
    assert len(costs([harness, official, deepthink]).axes[0].lines) == 3
    said = " ".join(README.read_text(encoding="utf-8").split())
    assert f"**Speed** ({record['date']})" in said
    assert f"takes 1/{row['harness'] / row['deepthink']:.0f} of the time" in said
    assert f"1/{row['harness'] / (row['deepthink'] + row['reading']):.0f} with the time to read" in said
    assert f"timed on {row['harness inputs']} of the inputs" in said


def test_the_page_of_performance_has_the_figures_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = {
        (row["L"], row["c"]): row for row in (dict(zip(record["columns"], row, strict=True)) for row in record["rows"])
    }
    said = " ".join((README.parent / "docs" / "performance.md").read_text(encoding="utf-8").split())
    times_as_long = [rows[place]["harness"] / rows[place]["deepthink"] for place in ((512, 2), (1536, 2), (512, 1))]
    for ratio, words in zip(
        times_as_long, ("[{} times as long]", "and {} times at L = 1,536", "leaves {} times"), strict=True
    ):
        assert words.format(f"{ratio:.0f}") in said
    row = rows[512, 2]
    assert f"({record['date']})" in said
    assert f"that of {row['harness inputs']} of the inputs, multiplied by four" in said
    assert row["scaled by"] == 4
    assert f"take {100 * row['products'] / row['deepthink']:.0f} % of the time" in said
    assert f"the same to {max(rows[length, 2]['difference'] for length in (0, 128, 512, 1536)):.1e} nats" in said


def test_the_table_has_every_task_and_their_mean(tmp_path: Path) -> None:
    for setting, positions in (("continued", "continued"), ("restarted", "restarted"), ("official", "continued")):
        write_grid(tmp_path / setting, positions, range(3))
    chosen = chosen_in(read_evidence(tmp_path).grid)
    headings, _, *tasks, all_tasks, _, said = accuracies(chosen).splitlines()
    assert said.startswith("After Holm's correction over 24 comparisons (4 settings, of which 2 are shown;")
    assert said.endswith(
        "those in bold are left." if "**" in "".join([*tasks, all_tasks]) else "no difference is left."
    )
    assert headings.count("|") == all_tasks.count("|") == 7
    assert all_tasks.startswith("| all five |")
    assert len(tasks) == chosen[0]["task"].nunique()
    first = chosen[0][chosen[0]["task"] == chosen[0]["task"].iloc[0]]
    assert set(first["eta"]) == {0.01}
    comparison = compare_chosen(first)
    plain = 100 * sum(comparison.before) / len(comparison.before)
    assert f"| {plain:.1f} |" in tasks[0]
    assert f"({100 * comparison.mean:+.1f}: " in tasks[0]


def test_the_table_stands_between_its_marks() -> None:
    before = "a\n<!-- table -->\nold\n<!-- /table -->\nb\n"
    assert with_table(before, "new") == "a\n<!-- table -->\nnew\n<!-- /table -->\nb\n"
    with pytest.raises(SystemExit, match="no <!-- table --> marks"):
        with_table("a", "new")
