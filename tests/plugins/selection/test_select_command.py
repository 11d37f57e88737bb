"""`deepthink select`: options, files and messages."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from conftest import Models, write_rows
from helpers.said import Captured, json_of
from helpers.tiny import tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.selection.registry import METHODS, Choice, Pool, SelectionMethod

ROWS: list[dict[str, object]] = [
    {"text": f"film {number}", "label": ("good", "bad")[number % 2]} for number in range(12)
]


def farthest(pool: Pool, shots: int, draw: random.Random) -> Choice:
    """The rows that are farthest from the mean hidden state of the queries, or of the pool."""
    assert pool.hidden is not None
    states = pool.hidden if pool.target_hidden is None else pool.target_hidden
    distances = np.linalg.norm(pool.hidden - states.mean(axis=0), axis=1).astype(np.float64)
    return Choice([int(row) for row in np.argsort(-distances)[:shots]], distances)


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(
        METHODS, "farthest", SelectionMethod(farthest, "far rows", "this test", ("hidden", "queries"), "one a row")
    )
    write_rows(tmp_path / "pool.jsonl", ROWS)


def refused(words: list[str], capsys: Captured) -> str:
    """The one line of a command that must be refused and write nothing."""
    before = {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}
    assert run(["select", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()} == before
    (line,) = err.splitlines()
    return line


def test_a_choice_and_the_memory_of_it(models: Models, capsys: Captured) -> None:
    words = (
        f"pool.jsonl -m {models('llama')} --demos-by farthest --shots 4 --balance -o demos.jsonl --pool-scores s.jsonl"
    )
    assert run(["select", *words.split()]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "chose   farthest, 4 of 12 rows of pool.jsonl, seed 0, balanced\nlabels  2 bad, 2 good\n" in err
    assert "read 12 rows in " in err
    assert f"next: deepthink think demos.jsonl -m {models('llama')}" in err
    rows = [json.loads(line) for line in Path("demos.jsonl").read_text().splitlines()]
    assert all(row in ROWS for row in rows)
    scores = [json.loads(line) for line in Path("s.jsonl").read_text().splitlines()]
    assert [ROWS[row["index"]] for row in sorted(scores, key=lambda row: row["chosen"] or 0) if row["chosen"]] == rows[
        1:
    ]
    assert all(row["score"] > 0 for row in scores)

    assert run(["think", "demos.jsonl", "-m", str(models("llama")), "-T", "1", "-q"]) == 0


def test_a_second_choice_reads_nothing_again(models: Models, capsys: Captured) -> None:
    words = ["pool.jsonl", "-m", str(models("llama")), "--demos-by", "farthest"]
    assert run(["select", *words, "--shots", "4"]) == 0
    described = json_of(capsys, "select", *words, "--shots", "2", "--json")
    assert (described["observed"], described["cached"]) == (0, 12)
    assert described["labels"].keys() == {"bad", "good"}
    assert described["file"] == "demos.jsonl"
    assert list(Path("cache").rglob("*.safetensors"))


def test_queries_are_read_without_their_labels(models: Models, capsys: Captured) -> None:
    write_rows(Path("queries.jsonl"), [{"text": "film 3", "label": "unknown"}, {"text": "a new film"}])
    words = ["pool.jsonl", "-m", str(models("llama")), "--demos-by", "farthest", "--shots", "2", "--json"]
    assert json_of(capsys, "select", *words, "--for", "queries.jsonl")["observed"] == 14


def test_rows_on_standard_output_are_all_that_is_there(capsys: Captured) -> None:
    assert run(["select", "pool.jsonl", "--demos-by", "first", "--shots", "3", "-o", "-"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == ROWS[:3]
    assert "wrote" not in err
    assert not Path("-").exists()


def test_a_csv_file_becomes_json_lines_with_all_columns(capsys: Captured) -> None:
    Path("pool.csv").write_text("id,text,label\n1,fine,yes\n2,poor,no\n3,fair,yes\n")
    template = "{text} -> {label}"
    assert run(["select", "pool.csv", "--template", template, "--demos-by", "first", "--shots", "1"]) == 0
    assert json.loads(Path("demos.jsonl").read_text()) == {"id": "1", "text": "fine", "label": "yes"}
    err = capsys.readouterr().err
    assert "next: deepthink think demos.jsonl --template '{text} -> {label}' --labels no,yes" in err
    assert run(["think", "demos.jsonl", "--template", template, "--labels", "no,yes", "-T", "1", "-q"]) == 0


def test_a_task_s_rows_are_chosen_and_can_be_thought_about(tmp_path: Path) -> None:
    task, data = tiny_task(tmp_path)
    words = ["--task", str(task), "--data-dir", str(data)]
    assert run(["select", *words, "--demos-by", "stratified"]) == 0
    rows = [json.loads(line) for line in Path("demos.jsonl").read_text().splitlines()]
    assert len(rows) == 4  # the task's own number of shots
    assert all(row.keys() == {"text", "kind"} for row in rows)
    for more in ([], ["--task", str(task)]):
        assert run(["think", "demos.jsonl", *more, "-T", "1", "-q"]) == 0


REFUSED = {
    "no method": (
        "pool.jsonl --shots 2",
        "--demos-by: no method; give random, or another one that deepthink list selections",
    ),
    "no shots": ("pool.jsonl --demos-by random", "--shots: no number of rows"),
    "no rows": ("--demos-by random --shots 2", "POOL: no rows; give a file of labelled rows, or --task NAME"),
    "a sample that is too small": (
        "pool.jsonl --demos-by random --shots 6 --pool-size 5",
        "pool.jsonl has 5 rows to choose from; 7 not in the sample of the pool",
    ),
    "a sample of nothing": ("pool.jsonl --demos-by random --shots 2 --pool-size 0", "--pool-size 0: a number of rows"),
    "an input as output": (
        "pool.jsonl --demos-by random --shots 2 -o pool.jsonl",
        "-o pool.jsonl: the same file as pool",
    ),
    "queries as output": (
        "pool.jsonl --demos-by farthest --shots 2 --for pool.jsonl --pool-scores pool.jsonl",
        "--pool-scores pool.jsonl: the same file as pool.jsonl",
    ),
    "one file for two outputs": (
        "pool.jsonl --demos-by random --shots 2 -o new.jsonl --pool-scores new.jsonl",
        "--pool-scores new.jsonl: the demonstrations are written there",
    ),
    "scores on standard output": (
        "pool.jsonl --demos-by random --shots 2 -o new.jsonl --pool-scores -",
        "--pool-scores -: standard",
    ),
    "two things on standard output": ("pool.jsonl --demos-by random --shots 2 -o - --json", "--json: standard output"),
    "standard input twice": ("- --demos-by farthest --shots 2 --for -", "--for -: POOL is standard input, too"),
    "a prompt beside a task": (
        "--task sst2 --demos-by random --template {text}{label}",
        "--template {text}{label}: not with --task, which has its own",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_one_line(case: str, capsys: Captured) -> None:
    words, message = REFUSED[case]
    assert message in refused(words.split(), capsys)


def test_a_cache_that_cannot_be_written_is_an_error(models: Models, capsys: Captured) -> None:
    Path("cache").write_text("a file")
    assert run(["select", "pool.jsonl", "-m", str(models("llama")), "--demos-by", "farthest", "--shots", "2"]) == 1
    assert "cache/deepthink: cannot be written" in capsys.readouterr().err
