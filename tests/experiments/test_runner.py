"""What is skipped, what is counted, and what people see while a run goes on."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Models, write_rows
from helpers.said import Captured, json_of
from helpers.tiny import run_files, run_words

from deepthink_cli import DemonstrationSet, Memory, Query, load_model, tokenize_demonstrations
from deepthink_cli.cli.main import run
from deepthink_cli.cli.run import RunProgress
from deepthink_cli.data.examples import Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Event
from deepthink_cli.experiments import scorer
from deepthink_cli.experiments.executors.base import JobsDone
from deepthink_cli.experiments.folder import LOCK, open_run_folder
from deepthink_cli.experiments.results import read_results
from deepthink_cli.scoring.pipeline import SAME_TOKENS, TOO_LONG, UNSCORABLE, planned
from deepthink_cli.thinking import think_together

PAIR = ("positive", "negative")


def test_queries_that_cannot_be_scored_are_counted_and_the_others_kept(reviews: DemonstrationSet) -> None:
    engine = load_model()  # its tokenizer knows no capitals
    read = tokenize_demonstrations(engine.tokenizer, reviews)
    given = [Query("fine", PAIR), Query("odd", ("Yes", "yes")), Query("word " * 5000, PAIR), Query("good", PAIR)]
    (chunk,) = planned(engine, read, given, skip=UNSCORABLE)
    assert [query.text for query in chunk.queries] == ["fine", "good"]
    assert [row.reason for row in chunk.rows if isinstance(row, Skipped)] == [SAME_TOKENS, TOO_LONG]


def test_a_disk_without_locks_is_no_place_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with (
        pytest.raises(DeepThinkError, match=r"has no locks .No locks available.*name a folder on another"),
        open_run_folder(tmp_path / "out"),
    ):
        pass


def test_a_run_that_is_open_is_refused_by_its_process_number_and_its_lock_file_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / LOCK).parent.mkdir()
    (out / LOCK).write_text("1234567890")  # of a process that has ended
    with open_run_folder(out):
        refused = rf"another deepthink run \(process {os.getpid()}\) writes there; wait for it"
        for _ in range(2):
            with pytest.raises(InputError, match=refused), open_run_folder(out):
                pass
    assert (out / LOCK).read_text() == str(os.getpid())
    with open_run_folder(out):
        pass


@pytest.mark.parametrize(("tokens", "seeds"), [("1", [[0], [1], [2]]), ("200", [[0, 1], [2]]), ("1000", [[0, 1, 2]])])
def test_jobs_whose_demonstrations_fit_a_pass_are_thought_about_in_step(
    tokens: str, seeds: list[list[int]], tmp_path: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[list[int]] = []

    def told(_: RunProgress, event: Event) -> None:
        if isinstance(event, JobsDone):
            done.append([int(label.split()[-1]) for label in event.rows])

    monkeypatch.setattr(RunProgress, "__call__", told)
    assert run(run_words(tmp_path, models("llama"), "-T", "2", "--seeds", "3", "--batch-tokens", tokens)) == 0
    assert done == seeds
    assert len(read_results(tmp_path / "out")) == 6


def test_every_job_leaves_a_line_for_people(tmp_path: Path, models: Models, capsys: Captured) -> None:
    out = tmp_path / "out"
    assert run(run_words(tmp_path, models("llama"), "-T", "2")) == 0
    said = capsys.readouterr().err
    assert "tiny, seed 0: T = 1: " in said
    assert "job 1 of 1" in said
    assert f"next: deepthink report {out}" in said


def test_the_bar_shows_jobs_and_time_left(
    tmp_path: Path, models: Models, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich then takes the stream for a terminal
    monkeypatch.setenv("COLUMNS", "160")
    assert run(run_words(tmp_path, models("llama"), "-T", "3")) == 0
    said = capsys.readouterr().err
    assert "0 of 1 jobs done" in said
    assert "left" in said


def test_a_run_prints_one_json_object_when_asked(tmp_path: Path, models: Models, capsys: Captured) -> None:
    done = json_of(capsys, *run_words(tmp_path, models("llama"), "-T", "2", "--json"))
    assert (done["rows"], done["written"], done["inputs"]) == (2, 2, 24)


def test_rows_of_own_candidates_are_scored_by_chance_and_without_labels(tmp_path: Path, models: Models) -> None:
    own = {"labels": None, "candidates": {"column": "options"}, "answer": "right"}
    example = {"body": "a", "options": ["x", "y"], "right": 0}
    words = run_words(tmp_path, models("llama"), "-T", "1", "-q", example=example, **own)
    for split in ("train", "test"):
        rows = [
            {"body": f"{split} {n}", "options": [f"one {n}", f"two {n}", "three"], "right": n % 3} for n in range(8)
        ]
        write_rows(tmp_path / "data" / "tiny" / f"{split}.jsonl", rows)
    assert run(words) == 0
    (row,) = read_results(tmp_path / "out")
    assert (row.n, row.majority, row.macro_f1) == (8, None, None)
    assert row.chance == pytest.approx(1 / 3)


def test_a_run_that_runs_out_of_memory_in_the_update_goes_on_with_fewer_memories_at_once(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "3", "--eta", "0.01,0.1", "--seeds", "2", "-q")
    assert run(words) == 0
    expected = {row.key: row for row in read_results(tmp_path / "out")}
    tried: list[int] = []

    def small(engine: Engine, given: Sequence[Any]) -> Iterator[list[Memory]]:
        tried.append(len(given))
        for memories in think_together(engine, given):
            if len(given) > 1 and memories[0].iteration == 2:
                raise torch.OutOfMemoryError
            yield memories

    monkeypatch.setattr("deepthink_cli.thinking.think_together", small)
    assert run([*words, "-o", str(tmp_path / "small")]) == 0
    found = {row.key: row for row in read_results(tmp_path / "small")}
    assert found.keys() == expected.keys()
    for key, row in found.items():  # on some processors sums depend in their last bits on what is read together
        assert (row.n, row.right, row.correct) == (expected[key].n, expected[key].right, expected[key].correct)
        assert row.drift == pytest.approx(expected[key].drift)
    assert tried == [4, 2, 1, 1, 2, 1, 1]


def test_a_run_that_runs_out_of_memory_while_it_scores_writes_every_row_once(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = run_words(tmp_path, models("llama"), "-T", "2", "--eta", "0.01,0.1", "--choose-on", "dev", "-q")
    assert run(words) == 0
    expected = sorted(run_files(tmp_path / "out")["results.jsonl"].splitlines())
    asked, whole = [0], scorer.scored

    def full_once(*given: Any, **named: Any) -> Any:
        asked[0] += 1
        if asked[0] == 4:  # a dev set, after the test rows of the same iteration
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
        return whole(*given, **named)

    monkeypatch.setattr(scorer, "scored", full_once)
    assert run([*words, "-o", str(tmp_path / "small")]) == 0
    assert sorted(run_files(tmp_path / "small")["results.jsonl"].splitlines()) == expected


@pytest.mark.usefixtures("loaded_anew")
def test_memories_made_together_are_as_many_as_the_free_memory_holds(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def counted(engine: Engine, given: Sequence[Any]) -> Iterator[list[Memory]]:
        seen.append(len(given))
        return think_together(engine, given)

    monkeypatch.setattr("deepthink_cli.thinking.think_together", counted)
    words = run_words(tmp_path, models("llama"), "-T", "2", "--eta", "0.01,0.1,0.2", "-q")
    for free, counts in ((2**30, [3]), (1, [1, 1, 1])):
        seen.clear()
        monkeypatch.setattr("deepthink_cli.engine.batches.byte_budget", lambda _, free=free: free)
        assert run([*words, "-o", str(tmp_path / str(free))]) == 0
        assert seen == counts
