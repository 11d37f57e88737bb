"""A run's folder and a report hold results of one state of the data: other data are refused, never mixed silently."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_rows
from helpers.said import Captured
from helpers.synthetic import curve, dev, row, write
from helpers.tiny import run_files, run_words

from deepthink_cli import load_model
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import FILE, Result, read_results
from deepthink_cli.report.job_results import jobs_of

OWN = {"labels": None, "candidates": {"column": "options"}, "example": {"body": "a", "kind": 1, "options": ["x", "y"]}}


@dataclass
class Folder:
    """A finished run with dev rows, and the output of `deepthink` when the same command runs again."""

    path: Path
    words: list[str]
    capsys: Captured

    @property
    def out(self) -> Path:
        return self.path / "out"

    def rows(self, split: str) -> list[dict[str, Any]]:
        lines = (self.path / "data" / "tiny" / f"{split}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def write(self, split: str, rows: list[dict[str, Any]]) -> None:
        write_rows(self.path / "data" / "tiny" / f"{split}.jsonl", rows)

    def again(self, *more: str) -> tuple[int, str]:
        self.capsys.readouterr()
        code = run([*self.words, *more])
        return code, self.capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path, models: Models, capsys: Captured) -> Folder:
    """Rows with candidates of their own, T = 2, one seed, test and dev."""
    words = run_words(tmp_path, models("llama"), "-T", "2", "--choose-on", "dev:16", "-q", **OWN)
    made = Folder(tmp_path, words, capsys)
    for split in ("train", "test"):
        made.write(split, [{**one, "options": ["negative", "positive"]} for one in made.rows(split)])
    assert made.again() == (0, "")
    return made


def flip(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "kind": 1 - one["kind"]} for one in rows]


def other_candidates(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows[:-1], {**rows[-1], "options": ["negative", "positive", "mixed"]}]


def reorder(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rows[1], rows[0], *rows[2:]]


@pytest.mark.parametrize("change", [flip, other_candidates, reorder])
def test_other_test_rows_are_refused_before_weights_are_loaded_and_nothing_is_written(
    change: Callable[[Any], Any], folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run_files(folder.out)
    folder.write("test", change(folder.rows("test")))
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", lambda _: pytest.fail("weights were loaded"))
    code, said = folder.again()
    assert code == 2
    assert f"{folder.out / FILE}:1: tiny, seed 0, test: this row and 1 more were made with other evaluated" in said
    assert said.endswith("than this command uses; name a new -o, or remove these rows\n")
    assert run_files(folder.out) == before


def test_other_dev_rows_are_refused(folder: Folder) -> None:
    drawn = _demonstrations_of(folder)
    pool = [{**one, "body": one["body"] + ("" if one["body"] in drawn else "!")} for one in folder.rows("train")]
    folder.write("train", pool)
    code, said = folder.again()
    assert (code, said.count("\n")) == (2, 1)
    assert "tiny, seed 0, dev: this row and 1 more were made with other evaluated rows than" in said


def test_other_training_rows_that_are_drawn_are_refused(folder: Folder) -> None:
    folder.write("train", flip(folder.rows("train")))
    code, said = folder.again()
    assert (code, said.count("\n")) == (2, 2)
    assert "seed 0, test: this row and 1 more were made with other demonstrations than" in said
    assert "seed 0, dev: this row and 1 more were made with other demonstrations and other evaluated rows" in said


def test_training_rows_that_no_result_depends_on_may_change(folder: Folder) -> None:
    (folder.out / FILE).write_text(
        "".join(one.line() for one in read_results(folder.out) if one.setting.part == "test")
    )
    drawn = _demonstrations_of(folder)
    pool = [{**one, "body": one["body"] + ("" if one["body"] in drawn else "!")} for one in folder.rows("train")]
    folder.write("train", pool)
    assert folder.again() == (0, "")


def _demonstrations_of(folder: Folder) -> set[str]:
    pool = folder.rows("train")
    return {pool[place]["body"] for place in random.Random(0).sample(range(len(pool)), 4)}


def test_another_definition_of_the_task_is_refused(folder: Folder) -> None:
    task = folder.path / "tiny.yaml"
    task.write_text(task.read_text().replace("answer: kind", "answer: {column: kind, first: 0}"))
    assert folder.again() == (0, "")  # the same definition, written differently
    task.write_text(task.read_text().replace("Sentiment:", "Mood:"))
    code, said = folder.again("--eta", "0.5")
    assert (code, said.count("\n")) == (2, 2)
    assert "this row and 1 more were made with another definition of the task than this command" in said


@pytest.mark.parametrize("more", [("--seeds", "7"), ("--dry-run",)])
def test_rows_that_are_added_must_be_of_the_same_data(more: tuple[str, ...], folder: Folder) -> None:
    folder.write("test", flip(folder.rows("test")))
    code, said = folder.again(*more)
    assert code == 2
    assert "other evaluated rows" in said


def test_a_fresh_folder_takes_the_new_data_under_other_keys(folder: Folder) -> None:
    folder.write("test", flip(folder.rows("test")))
    fresh = folder.path / "fresh"
    assert folder.again("-o", str(fresh)) == (0, "")
    one, two = (next(iter(read_results(place))) for place in (folder.out, fresh))
    assert (one.right + two.right, one.key == two.key) == (12, False)
    assert replace(one.setting, rows_sha256=None) == replace(two.setting, rows_sha256=None)


def test_the_same_data_may_move_and_change_their_format(folder: Folder, tmp_path: Path, models: Models) -> None:
    words = run_words(tmp_path / "plain", models("llama"), "-T", "2", "-q", "--seeds", "2")
    assert run([*words, "--seeds", "1"]) == 0
    moved = tmp_path / "elsewhere"
    shutil.move(tmp_path / "plain" / "data", moved)
    rows = [json.loads(line) for line in (moved / "tiny" / "test.jsonl").read_text().splitlines()]
    with open(moved / "tiny" / "test.csv", "w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    (moved / "tiny" / "test.jsonl").unlink()
    assert run([*words, "--data-dir", str(moved)]) == 0
    assert len(read_results(tmp_path / "plain" / "out")) == 4


@pytest.mark.usefixtures("loaded_anew")
def test_rows_that_change_while_a_run_goes_on_are_not_scored(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(folder.words[6]).model

    def slow(_: object) -> object:
        folder.write("test", flip(folder.rows("test")))
        return model

    monkeypatch.setattr("deepthink_cli.engine.opening.load_language_model", slow)
    code, said = folder.again("-o", str(folder.path / "fresh"))
    assert code == 1
    assert "task tiny: its test rows have changed since they were checked" in said
    assert read_results(folder.path / "fresh") == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row(60, iteration=2, rows_sha256="s")],
            "b.*:1: sst2, seed 0, test: this row was made with other evaluated rows than .*a.*:1;",
        ),
        ([row(60, model="other", rows_sha256="s")], "other evaluated rows"),
        ([row(60, iteration=2, demonstrations_sha256="e")], "other demonstrations"),
        (
            [*dev([50], 0, 0.01), *curve([50], eta=0.1, part="dev", split="train", rows_sha256="s")],
            "b.*:2: sst2, seed 0, dev: this row .* than .*:1;",
        ),
    ],
)
def test_a_report_refuses_results_of_different_data(rows: list[Result], message: str, tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", curve([50])), write(tmp_path / "b", rows)]
    with pytest.raises(InputError, match=message):
        jobs_of([one for folder in runs for one in read_results(folder)])


def test_dev_rows_and_demonstrations_may_differ_by_seed() -> None:
    seeds = [
        [
            *curve([50], seed=n, demonstrations_sha256=f"d{n}"),
            *curve([50], seed=n, demonstrations_sha256=f"d{n}", part="dev", rows_sha256=f"r{n}"),
        ]
        for n in (0, 1)
    ]
    assert len(jobs_of([*seeds[0], *seeds[1]])) == 2
