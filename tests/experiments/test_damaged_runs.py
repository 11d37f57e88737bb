"""Damaged runs: a row whose values contradict each other is an error, and lost samples are made again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from conftest import Models
from helpers.by_hand import canonical
from helpers.inline_workers import InlineExecutor
from helpers.said import Captured
from helpers.tiny import run_files, run_words

from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.executors import local
from deepthink_cli.experiments.results import FILE, bits, read_results
from deepthink_cli.experiments.samples import FOLDER, find_samples, texts_path


@pytest.fixture(scope="module")
def command(models: Models, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A small run with samples: one task, one seed, T = 2."""
    return run_words(tmp_path_factory.mktemp("run"), models("llama"), "-T", "2", "--samples", "--quiet")


@pytest.fixture(scope="module")
def complete(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the run writes, once."""
    assert run(command) == 0
    return Path(command[command.index("-o") + 1]).rename(tmp_path_factory.mktemp("complete") / "out")


@pytest.fixture
def out(command: list[str], complete: Path) -> Iterator[Path]:
    """The folder of the run, complete."""
    folder = shutil.copytree(complete, command[command.index("-o") + 1])
    yield Path(folder)
    shutil.rmtree(folder)


def changed(out: Path, **values: Any) -> None:
    """Change values of the second row, and its digest with them."""
    first, second = (out / FILE).read_text().splitlines()
    row = {**json.loads(second), **values}
    del row["sha256"]
    digest = hashlib.sha256(canonical(row).encode()).hexdigest()
    (out / FILE).write_text(f"{first}\n{json.dumps({**row, 'sha256': digest})}\n")


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a row that holds a value of its own."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from [place for key, each in inner for place in places(each, (*at, key))] or [at]


def test_no_field_of_a_row_can_be_changed_without_notice(complete: Path, tmp_path: Path) -> None:
    line = read_results(complete)[1].line()
    for place in places(json.loads(line)):
        row = json.loads(line)
        inner: Any = row
        for step in place[:-1]:
            inner = inner[step]
        old = inner[place[-1]]
        others = (old + 1 if isinstance(old, int) else 0.5, f"{old}x", None, 1, [], {})
        for other in (each for each in others if each != old):
            inner[place[-1]] = other
            (tmp_path / FILE).write_text(json.dumps(row) + "\n")
            with pytest.raises(InputError, match="remove the line"):
                read_results(tmp_path)


def wrong_labels(path: Path) -> None:
    """Make every right label in a file of samples a wrong one."""
    table = pyarrow.parquet.read_table(path)
    labels = table["label"].to_pylist()
    wrong = ["wrong" if label == gold else label for label, gold in zip(labels, table["gold"].to_pylist(), strict=True)]
    number = table.column_names.index("label")
    pyarrow.parquet.write_table(table.set_column(number, "label", [wrong]), path)


def one_bit(path: Path) -> None:
    """Change one bit of the last score."""
    columns = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    number = next(n for n in range(columns.num_columns) if columns.column(n).path_in_schema.startswith("scores"))
    column, content = columns.column(number), bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "one bit": one_bit,
    "wrong labels": wrong_labels,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_samples_that_are_missing_or_damaged_are_made_again(
    command: list[str], out: Path, damage: str, capsys: Captured
) -> None:
    before, path = run_files(out), find_samples(out, read_results(out)[1])
    assert path is not None
    DAMAGES[damage](path)
    assert run([word for word in command if word != "--quiet"]) == 0
    assert f"{out}: the samples of 1 rows are missing or damaged" in capsys.readouterr().err
    assert run_files(out) == before


@pytest.mark.parametrize("content", [None, b"not parquet"])
def test_the_texts_of_inputs_are_made_again_too(command: list[str], out: Path, content: bytes | None) -> None:
    before, path = run_files(out), texts_path(out, str(read_results(out)[0].setting.rows_sha256))
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert run(command) == 0
    assert run_files(out) == before


def test_a_run_without_samples_gets_them_from_the_same_command_with_samples(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LocalExecutor", lambda workers, *_: InlineExecutor(workers))
    command = [*command, "-o", str(tmp_path / "out")]
    plain = [word for word in command if word != "--samples"]
    assert run(plain) == 0
    rows = (tmp_path / "out" / FILE).read_bytes()
    assert run([*command, "--workers", "1"]) == 0
    assert (tmp_path / "out" / FILE).read_bytes() == rows
    assert len(list((tmp_path / "out" / FOLDER).iterdir())) == 3
    assert run(plain) == 0  # and is complete without them


def test_samples_of_a_row_that_is_otherwise_today_are_not_written(
    command: list[str], out: Path, capsys: Captured
) -> None:
    row = read_results(out)[1]
    opposite = [not right for right in row.was_right()]
    changed(out, correct=bits(opposite), right=sum(opposite), accuracy=sum(opposite) / row.n)
    before = run_files(out)
    assert run(command) == 1
    assert f"(key {row.key}) has other labels now than in its row" in capsys.readouterr().err
    assert run_files(out) == before
