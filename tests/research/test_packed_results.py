"""Folders of runs as Parquet tables: scores are rounded, the same rows give the same bytes, and runs continue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.small_evidence import ITERATIONS, write_row

from deepthink_cli.data.examples import Query
from deepthink_cli.experiments.results import read_results
from deepthink_cli.experiments.samples import find_samples, read_samples, read_texts, without_samples, write_texts
from deepthink_cli.scoring.prediction import Prediction
from research.encoding import alike
from research.evidence.runs import STAGES
from research.packing import TABLES, TEXTS, continued, pack, table_of, unpack, unpacked


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with samples of different labels, the texts of its inputs, a file of costs, and a lock."""
    folder = tmp_path / "model-1.7b"
    for t in ITERATIONS:
        add_row(folder / "run", t)
    add_texts(folder / "run", {"rows:1": "a text"})
    (folder / "costs.jsonl").write_bytes(b'{"method": "r\xc3\xa9sum\xc3\xa9"}\r\n\n{"sets":1}\n')
    (folder / "empty.jsonl").touch()
    (folder / "run" / ".lock").write_text("1")
    return folder


def add_row(run: Path, t: int) -> None:
    write_row(run, np.random.default_rng(t).normal(size=(8, 2)), t=t)


def add_texts(run: Path, texts: dict[str, str]) -> None:
    predictions = [
        Prediction(Query(text, ("x", "y"), "x", where), 1, "x", 0.5, {"x": -1.0}, "x", False, means={"x": -1.0})
        for where, text in texts.items()
    ]
    write_texts(run, "digest", predictions)


def moved(folder: Path) -> Path:
    return folder.rename(folder.parent / "moved")


def test_every_line_and_every_row_comes_back_as_it_was(folder: Path) -> None:
    pack(folder)
    old = moved(folder)
    unpack(folder)
    paths = [path.relative_to(old) for path in old.rglob("*") if path.is_file()]
    kept = [path for path in paths if path.name not in (".lock", "empty.jsonl")]
    assert len(kept) == len(ITERATIONS) + 3
    assert {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == set(kept)
    for path in kept:
        if path.suffix == ".jsonl":
            assert (folder / path).read_bytes() == (old / path).read_bytes()
        else:
            assert alike(pq.read_table(folder / path), pq.read_table(old / path))
    for row in read_results(folder / "run"):
        path = find_samples(folder / "run", row)
        assert path is not None
        read_samples(path, row)


def test_the_same_rows_give_the_same_bytes_and_are_not_written_again(folder: Path) -> None:
    pack(folder)
    table = table_of(folder)
    first, written = table.read_bytes(), table.stat()
    pack(folder)
    assert table.stat().st_ino == written.st_ino
    moved(folder)
    unpack(folder)
    table.unlink()
    pack(folder)
    assert table.read_bytes() == first


def test_a_run_continues_from_the_table_and_extends_it_even_if_it_ends_early(folder: Path) -> None:
    pack(folder)
    moved(folder)

    def run() -> None:
        with continued([folder, folder.parent / "never-started"]):
            assert len(read_results(folder / "run")) == len(ITERATIONS)
            add_row(folder / "run", 9)
            with open(folder / "run" / "results.jsonl", "ab") as file:
                file.write(b'{"torn')
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not table_of(folder.parent / "never-started").exists()
    with unpacked(folder.parent) as tables:
        rows = read_results(tables / folder.name / "run")
        assert [row.setting.iteration for row in rows] == [*ITERATIONS, 9]
        assert (tables / folder.name / "run" / "results.jsonl").read_bytes().endswith(b"}\n")


def test_the_folder_of_a_run_that_was_killed_is_continued_as_it_is(folder: Path) -> None:
    pack(folder)
    add_row(folder / "run", 9)
    with continued([folder]):
        assert len(read_results(folder / "run")) == len(ITERATIONS) + 1


def test_the_tables_of_a_folder_have_their_texts_once(folder: Path) -> None:
    other = folder.parent / "other"
    add_row(other / "run", 1)
    add_texts(other / "run", {"rows:1": "a text", "rows:2": "another"})
    pack(folder)
    pack(other)
    assert pq.read_table(folder.parent / TEXTS)["text"].to_pylist() == ["a text", "another"]
    with unpacked(folder.parent) as tables:
        assert read_texts(tables / folder.name / "run", "digest") == {"rows:1": "a text"}
        assert read_texts(tables / "other" / "run", "digest") == {"rows:1": "a text", "rows:2": "another"}


def lose_a_line(folder: Path) -> None:
    path = folder / "run" / "results.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def lose_a_file(folder: Path) -> None:
    next((folder / "run" / "samples").iterdir()).unlink()


@pytest.mark.parametrize("lose", [lose_a_line, lose_a_file])
def test_a_folder_that_lacks_rows_of_its_table_does_not_replace_it(folder: Path, lose: Callable[[Path], None]) -> None:
    pack(folder)
    before = table_of(folder).read_bytes()
    lose(folder)
    with pytest.raises(SystemExit, match=r"has rows of run/.* lacks: move one of the two away"):
        pack(folder)
    assert table_of(folder).read_bytes() == before


def test_a_table_is_not_unpacked_over_a_folder(folder: Path) -> None:
    pack(folder)
    with pytest.raises(SystemExit, match="is there already"):
        unpack(folder)


def test_a_file_that_a_table_cannot_hold_is_refused(folder: Path) -> None:
    path = folder / "run" / "samples" / "free.parquet"
    table = pq.read_table(next(path.parent.glob("sst2*.parquet")))
    pq.write_table(table.append_column("note", [[None] * len(table)]), path)
    with pytest.raises(SystemExit, match=r"free.parquet: would lose columns or types"):
        pack(folder)
    assert not table_of(folder).exists()


@pytest.mark.soak  # of the repository's tables alone
def test_the_committed_runs_that_go_on_have_the_scores_and_texts_of_every_row() -> None:
    with unpacked(TABLES / "evidence", STAGES) as folders:
        for run in map(folders.joinpath, STAGES):
            assert not without_samples(run, read_results(run))
