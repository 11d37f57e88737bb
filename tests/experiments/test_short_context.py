"""Where the context is short: whole demonstrations are left out, the same ones for every technique."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.families import write_model
from helpers.inline_workers import InlineExecutor
from helpers.said import Captured, refused
from helpers.tiny import run_words, tiny_task

from deepthink_cli import Method
from deepthink_cli.cli.main import run
from deepthink_cli.experiments import run as run_here
from deepthink_cli.experiments import scorer
from deepthink_cli.experiments.executors import local
from deepthink_cli.experiments.results import Result, read_results
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.report.footnotes import footnotes
from deepthink_cli.report.job_results import jobs_of

pytestmark = pytest.mark.plugins  # techniques and methods of choice that are named

Words = Callable[..., list[str]]
ALL = "deep-thinking,repeat-2,repeat-3,ensemble-4"
UNEVEN = [
    {"body": f"a {'slow ' * (n * 5 % 11)}play {n}", "kind": n % 2} for n in range(8)
]  # orders cut one by one would hold different numbers of them


@pytest.fixture
def words(tmp_path: Path) -> Words:
    """A run of eight demonstrations, more than the model holds; T = 1."""
    model = write_model(tmp_path / "short", "gpt2", n_positions=330)
    command = run_words(tmp_path, model, "--shots", "8", "-T", "1", train=8, sampling="first")
    write_rows(tmp_path / "data" / "tiny" / "train.jsonl", UNEVEN)
    return lambda *more: [*command, *more]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[TokenizedDemonstrations]:
    """The demonstrations that runs read, one for each memory."""
    found: list[TokenizedDemonstrations] = []
    real = scorer.think_in_batches

    def noting(engine: object, thoughts: Sequence[tuple[TokenizedDemonstrations, Method]], score: object) -> object:
        found.extend(demonstrations for demonstrations, _ in thoughts)
        return real(engine, thoughts, score)  # type: ignore[arg-type]

    monkeypatch.setattr(scorer, "think_in_batches", noting)
    return found


def rows_of(folder: Path) -> dict[str, Result]:
    """The rows by their techniques."""
    return {row.setting.technique or "plain": row for row in read_results(folder / "out")}


def texts(demonstrations: TokenizedDemonstrations) -> Counter[str]:
    """How often each demonstration was read."""
    return Counter(example.text for example in demonstrations.examples)


def test_every_technique_of_a_run_reads_the_same_whole_demonstrations(
    words: Words, read: list[TokenizedDemonstrations]
) -> None:
    assert run(words("--technique", ALL, "-q")) == 0
    plain, twice, thrice, *ensemble = map(texts, read)
    assert 1 < len(plain) < 8
    assert list(plain) == [row["body"] for row in UNEVEN[-len(plain) :]]  # the first ones are left out
    assert set(plain.values()) == {1}
    assert twice == Counter(dict.fromkeys(plain, 2))
    assert thrice == Counter(dict.fromkeys(plain, 3))
    assert ensemble == [plain] * 4
    assert read[3].examples == read[0].examples


def test_it_is_said_once_how_many_are_left_out_and_for_which_technique(words: Words, capsys: Captured) -> None:
    assert run(words("--technique", ALL, "--dry-run")) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert "tiny, seed 0: 2 of 8 demonstrations fit " in line
    assert line.endswith(" with repeat-3; the first 6 are left out for every method")


def test_rows_count_different_demonstrations_and_name_those_that_plain_rows_have(words: Words, tmp_path: Path) -> None:
    assert run(words("--technique", f"{ALL},fresh", "-q")) == 0
    rows = rows_of(tmp_path)
    counts = {"plain": 2, "repeat-2": 4, "repeat-3": 6, "ensemble-4": 2, "fresh": 2}
    assert {name: row.shots_used for name, row in rows.items()} == counts
    assert {row.demonstrations_used for row in rows.values()} == {2}
    plain = rows["plain"]
    assert plain.plain_sha256 is None
    assert {row.plain_sha256 or row.demonstrations_sha256 for row in rows.values()} == {plain.demonstrations_sha256}
    assert "Fewer demonstrations used than asked: tiny 2 of 8" in footnotes(jobs_of(rows.values()))


def test_a_run_of_plain_rows_alone_reads_as_many_as_fit_once(words: Words, tmp_path: Path) -> None:
    assert run(words("-q")) == 0
    assert rows_of(tmp_path)["plain"].shots_used > 2


def test_a_folder_of_plain_rows_with_more_demonstrations_is_not_continued(words: Words, capsys: Captured) -> None:
    assert run(words("-q")) == 0
    assert "made with other demonstrations than this command uses" in refused(capsys, *words("--technique", ALL, "-q"))


def test_a_query_that_fits_only_after_some_members_is_left_out_for_all(
    tmp_path: Path, read: list[TokenizedDemonstrations]
) -> None:
    model = write_model(tmp_path / "short", "gpt2", n_positions=128)
    # "positiv" and the "e" of the next demonstration share a token, except at the end: orders differ in their tokens.
    task = {"template": "e {text}: {kind}", "separator": "", "labels": ["bad", "positiv"], "shots": 4}
    file, data = tiny_task(tmp_path, train=4, **task)
    fields = {"models": str(model), "tasks": str(file), "protocols": "paper", "iterations": 1, "tokens": "parts"}
    fields |= {"data_dir": str(data), "techniques": "ensemble-4"}
    (tmp_path / "study.yaml").write_text(json.dumps(fields))
    write_rows(tmp_path / "data" / "tiny" / "test.jsonl", [{"body": "x" * n, "kind": n % 2} for n in range(1, 100)])
    assert run(["study", "run", str(tmp_path / "study.yaml"), "-q", "-o", str(tmp_path / "out")]) == 0
    assert len({len(member.token_ids) for member in read}) == 2
    row = rows_of(tmp_path)["ensemble-4"]
    assert row.n + row.skipped["too long for the model"] == 99


def test_techniques_with_which_no_demonstration_fits_are_refused_before_the_model_is_loaded(
    words: Words, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_here, "load", None)
    line = refused(capsys, *words("--technique", "deep-thinking,repeat-40", "-q"))
    assert "task tiny, seed 0: none of its demonstrations fits with --technique repeat-40: the last has " in line
    assert "omit repeat-40 or the task" in line


@pytest.mark.parametrize("more", [(), ("--workers", "1")], ids=["here", "in a worker"])
def test_it_is_said_once_of_demonstrations_that_are_chosen_with_the_model(
    more: Sequence[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LocalExecutor", lambda workers, *_: InlineExecutor(workers))
    model = write_model(tmp_path / "short", "gpt2", n_positions=330)
    command = run_words(tmp_path, model, "--shots", "8", "--demos-by", "random", "-T", "1", train=8)
    write_rows(tmp_path / "data" / "tiny" / "train.jsonl", UNEVEN)
    assert run([*command, "--technique", "deep-thinking,repeat-3", *more]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "are left out for every method" in line]
    assert len(said) == 1
    assert f" of 8 demonstrations fit {model} with repeat-3; the first " in said[0]
