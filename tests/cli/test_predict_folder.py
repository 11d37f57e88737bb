"""A folder, or a pattern, of Parquet files is labelled as one file of all their rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from helpers.folders import memory_and_folder, scores_in
from helpers.inline_workers import InlineExecutor, labelling_inline
from helpers.said import Captured

from deepthink_cli.cli.main import run
from deepthink_cli.data.rows import read_rows
from deepthink_cli.errors import InputError
from deepthink_cli.prediction.predict import Labelling
from deepthink_cli.scoring.pipeline import CHUNK, Part

Given = tuple[str, Path]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """A memory, and a folder of three files of four rows."""
    return memory_and_folder(tmp_path)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> InlineExecutor:
    """Two workers in this process."""
    return labelling_inline(monkeypatch)


def labels(memory: str, inputs: object, output: Path, *more: str) -> int:
    return run(["predict", memory, str(inputs), "-o", str(output), "-q", *more])


def write(path: Path, **columns: list[Any]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def refusal(path: object) -> str:
    with pytest.raises(InputError) as caught:
        list(read_rows(str(path)))
    return str(caught.value)


def test_a_folder_and_a_pattern_are_the_rows_of_their_files_by_name(given: Given, tmp_path: Path) -> None:
    memory, folder = given
    whole = pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in sorted(folder.iterdir())])
    pyarrow.parquet.write_table(whole, tmp_path / "whole.parquet")
    (folder / "README.md").write_text("not rows")
    found = []
    for number, inputs in enumerate((tmp_path / "whole.parquet", folder, f"{folder}/part-*.parquet")):
        output = tmp_path / f"{number}.parquet"
        assert labels(memory, inputs, output) == 0
        found.append(output.read_bytes())
    assert found[0] == found[1] == found[2]
    assert labels(memory, f"{folder}/part-[12].parquet", tmp_path / "two.jsonl") == 0
    rows = [json.loads(line) for line in (tmp_path / "two.jsonl").read_text().splitlines()]
    assert [row["input"]["text"] for row in rows] == whole["text"].to_pylist()[4:]


def test_a_row_is_named_by_its_file_and_its_place_there(given: Given, tmp_path: Path, capsys: Captured) -> None:
    memory, folder = given
    write(folder / "part-1.parquet", text=["a film", ""])
    assert labels(memory, folder, tmp_path / "out.jsonl") == 2
    assert f"{folder}/part-1.parquet:2: " in capsys.readouterr().err


def test_files_with_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", text=["x"], id=[1])
    write(tmp_path / "b.parquet", text=["x"], id=[1])
    write(tmp_path / "c.parquet", words=["x"])
    write(tmp_path / "d.parquet", text=["x"], id=["1"])
    expected = [
        f"{tmp_path}/c.parquet: its columns are not those of {tmp_path}/a.parquet: words string",
        f"{tmp_path}/d.parquet: its columns are not those of {tmp_path}/a.parquet: text string, id string",
    ]
    assert refusal(tmp_path).splitlines() == expected


def test_a_folder_of_other_files_and_a_pattern_of_them_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\nx\n")
    assert refusal(tmp_path) == f"{tmp_path}: has no .parquet files; name a .jsonl, .csv or .tsv file in it"
    assert refusal(f"{tmp_path}/*") == f"{tmp_path}/a.csv: not a .parquet file; only files of Parquet are read together"
    assert refusal(f"{tmp_path}/*.parquet").endswith(
        "*.parquet: no such file; check the path, or use - for standard input"
    )


def test_a_name_with_signs_of_a_pattern_is_that_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "[a]"
    folder.mkdir()
    write(folder / "x[0].parquet", text=["x"])
    for path in (folder, folder / "x[0].parquet"):
        assert [row.where for row in read_rows(str(path))] == [f"{folder}/x[0].parquet:1"]


def test_a_file_of_the_folder_is_never_overwritten(given: Given, capsys: Captured) -> None:
    memory, folder = given
    for inputs in (folder, f"{folder}/*.parquet"):
        before = (folder / "part-1.parquet").read_bytes()
        assert labels(memory, inputs, folder / "part-1.parquet") == 2
        assert "which this command reads" in capsys.readouterr().err
        assert (folder / "part-1.parquet").read_bytes() == before


def test_an_interrupted_labelling_of_a_folder_is_continued(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    memory, folder = given
    for number in range(3):
        write(folder / f"part-{number}.parquet", text=[f"film {number} {row}" for row in range(200)])
    assert labels(memory, folder, tmp_path / "alone.jsonl") == 0
    label, chunks = Labelling.__call__, 1

    def interrupted(*given: Any, **more: Any) -> Iterator[Part]:
        for number, part in enumerate(label(*given, **more)):
            if number == chunks:
                raise KeyboardInterrupt
            yield part

    with monkeypatch.context() as patched:
        patched.setattr(Labelling, "__call__", interrupted)
        assert labels(memory, folder, tmp_path / "out.jsonl", "--resume") == 130
    assert (tmp_path / "out.jsonl.partial").exists()
    capsys.readouterr()
    assert run(["predict", memory, str(folder), "-o", str(tmp_path / "out.jsonl"), "--resume"]) == 0
    assert "256 of 600 rows are there" in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


def test_workers_divide_the_rows_of_a_folder(given: Given, inline: InlineExecutor, tmp_path: Path) -> None:
    memory, folder = given
    assert labels(memory, folder, tmp_path / "alone.parquet") == 0
    assert labels(memory, folder, tmp_path / "divided.parquet", "--workers", "2") == 0
    assert (tmp_path / "divided.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()


@pytest.mark.plugins
def test_every_worker_scores_with_a_vllm_of_its_own(
    given: Given, inline: InlineExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers import vllm_alike

    memory, folder = given
    write(folder / "part-1.parquet", text=[f"film {row}" for row in range(CHUNK + 2)])
    assert labels(memory, folder, tmp_path / "ours.parquet") == 0
    monkeypatch.setitem(sys.modules, "vllm", vllm_alike)
    started = list[str]()
    monkeypatch.setattr(vllm_alike, "STARTED", started)
    assert labels(memory, folder, tmp_path / "theirs.parquet", "--workers", "2", "--engine", "vllm") == 0
    assert len(started) == 2
    assert scores_in(tmp_path / "theirs.parquet") == pytest.approx(scores_in(tmp_path / "ours.parquet"), abs=1e-4)


def test_options_of_other_formats_are_refused(given: Given, tmp_path: Path, capsys: Captured) -> None:
    memory, folder = given
    assert labels(memory, folder, tmp_path / "out.jsonl", "--format", "csv") == 2
    assert f"--format csv: {folder} is read as Parquet files; omit it" in capsys.readouterr().err
    assert labels(memory, folder, tmp_path / "out.jsonl", "--no-header") == 2
    assert "is read as parquet" in capsys.readouterr().err


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", text=["x"])
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    assert refusal(tmp_path).startswith(f"{tmp_path}/b.parquet: not a Parquet file (")
