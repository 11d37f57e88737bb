"""`deepthink run --demos FILE`: none of the rows is evaluated, in the test or in the dev part."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest
from conftest import Models, write_rows
from helpers.said import Captured, refused
from helpers.tiny import reviews, run_words

from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import read_results
from deepthink_cli.experiments.samples import samples_path


def given(folder: Path, rows: list[dict[str, object]]) -> list[str]:
    """The words that name a file of these rows."""
    return ["--demos", str(write_rows(folder / "given.jsonl", rows))]


@pytest.mark.parametrize("limit", [[], ["--limit", "2"]])
def test_demonstrations_from_the_evaluated_split_are_refused(
    limit: list[str], models: Models, tmp_path: Path, capsys: Captured
) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "2", *limit)
    line = refused(capsys, *words, *given(tmp_path, [*reviews("play", 2), *reviews("film", 12)[:3]]))
    expected = "--demos: row 3, 'a warm film 0': in split test, which task tiny evaluates, and so are 2 other rows; "
    assert expected in line
    assert not (tmp_path / "out").exists()


def test_a_demonstration_with_another_label_and_other_blanks_is_refused(
    models: Models, tmp_path: Path, capsys: Captured
) -> None:
    rows: list[dict[str, object]] = [
        {"text": "a play", "kind": "negative"},
        {"text": " a warm film 0 ", "kind": "negative"},
    ]
    assert run(run_words(tmp_path, models("llama"), "-T", "2", *given(tmp_path, rows))) == 2
    assert "--demos: row 2, 'a warm film 0': in split test" in capsys.readouterr().err


def test_given_demonstrations_are_not_in_the_dev_set(models: Models, tmp_path: Path) -> None:
    chosen = reviews("play", 20)[:2] + reviews("play", 20)[-2:]
    words = run_words(tmp_path, models("llama"), "-T", "1", "--choose-on", "dev:20", "--samples", "-q")
    assert run([*words, *given(tmp_path, chosen)]) == 0
    (row,) = [row for row in read_results(tmp_path / "out") if row.setting.part == "dev"]
    samples = pyarrow.parquet.read_table(samples_path(tmp_path / "out", row)).to_pylist()
    places = {int(sample["where"].rpartition(":")[2]) for sample in samples}
    assert places == set(range(3, 19))
