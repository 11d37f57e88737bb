"""The table and the pictures of README.md: read from committed measurements, with the statistics of the evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.records import recorded
from helpers.small_evidence import write_evidence

from research.evidence.compared import OF_HEAD, PAPER, lines
from research.evidence.load import read_evidence
from research.front_page import README, RECORD, accuracies, costs, times, with_table


def measured(length: int, c: int = 2) -> dict[str, Any]:
    """The row of the record after so many demonstration tokens, with candidates of c tokens."""
    (row,) = (row for row in recorded(RECORD) if (row["L"], row["c"]) == (length, c))
    return row


def test_the_times_are_those_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    harness, official, deepthink = times(record)
    assert [each.system for each in (harness, official, deepthink)] == [
        *("lm-evaluation-harness", "official way", "deepthink")
    ]
    assert list(deepthink.seconds) == [0, 128, 512, 1536]
    row = measured(512)
    of_row = row["harness"], row["official"], row["deepthink"]
    assert (harness.seconds[512], official.seconds[512], deepthink.seconds[512]) == of_row
    assert len(costs([harness, official, deepthink]).axes[0].lines) == 3
    said = " ".join(README.read_text(encoding="utf-8").split())
    assert f"{row['harness'] / row['deepthink']:.0f} times the rows a second of lm-evaluation-harness" in said
    rates = {peer["system"]: peer["rows a second"] for peer in recorded(RECORD.with_name("peers.json"))}
    ours = rates["`deepthink predict`"]
    assert f"{ours / rates['vLLM, its prefix cache']:.1f} times those of vLLM with its prefix cache" in said
    assert f"{ours / rates['llama.cpp, the exported memory']:.1f} times those of llama.cpp" in said


def test_the_page_of_performance_has_the_figures_of_the_record() -> None:
    said = " ".join((README.parent / "docs" / "performance.md").read_text(encoding="utf-8").split())
    row, one_token, longest = measured(512), measured(512, c=1), measured(1536)
    assert f"[{row['harness'] / row['deepthink']:.0f} times as long]" in said
    assert f"and {longest['harness'] / longest['deepthink']:.0f} times at L = 1,536" in said
    assert f"then takes {one_token['harness'] / one_token['deepthink']:.0f} times as long" in said
    assert f"({json.loads(RECORD.read_text(encoding='utf-8'))['date']})" in said
    assert f"on {row['harness inputs']} of the inputs, and its time multiplied by four" in said
    assert row["scaled by"] == 4
    largest = max(measured(length)["difference"] for length in (0, 128, 512, 1536))
    assert f"scores differ by at most {largest:.1e} nats" in said


def test_the_table_has_every_task_and_their_mean(tmp_path: Path) -> None:
    write_evidence(tmp_path, range(3))
    found = {each.name: each for each in lines(read_evidence(tmp_path))}
    thinking = found[PAPER]
    _, _, *tasks, every = accuracies({PAPER: thinking, OF_HEAD: thinking}).splitlines()
    for line, task in zip(tasks, ("sst2", "mr"), strict=True):
        sides = (
            [parts["test"].right for (name, _), parts in side.items() if name == task]
            for side in (thinking.before, thinking.after)
        )
        before, after = (100 * np.mean(side) for side in sides)
        assert f"| {before:.1f} | {after:.1f} | {after:.1f} |" in line
    change = thinking.by("accuracy").mean
    assert every.startswith("| all five |")
    assert every.count(f"({100 * change:+.1f} [") == 2


def test_the_table_stands_between_its_marks() -> None:
    before = "a\n<!-- table -->\nold\n<!-- /table -->\nb\n"
    assert with_table(before, "new") == "a\n<!-- table -->\nnew\n<!-- /table -->\nb\n"
    with pytest.raises(SystemExit, match="no <!-- table --> marks"):
        with_table("a", "new")
