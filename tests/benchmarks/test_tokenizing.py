"""The rates of what `predict` does beside the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from helpers.task_rows import ROWS, write_task_rows

from tokenizing import COLUMNS, stages


def test_every_stage_is_timed_and_all_rows_are_labelled(tmp_path: Path, models: Callable[[str], Path]) -> None:
    data = write_task_rows(tmp_path, ["agnews"])
    seconds = stages(tmp_path, str(data / "ag_news" / "test.jsonl"), str(data), str(models("llama")))
    assert len(seconds) == len(COLUMNS) - 1
    assert min(seconds) >= 0
    assert len((tmp_path / "labels.jsonl").read_text().splitlines()) == ROWS
