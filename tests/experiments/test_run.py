"""`deepthink run`: every row once, whatever happens in between."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
from conftest import Models, write_rows
from helpers.said import Captured, json_of, output, refused
from helpers.tiny import reviews, run_words

from deepthink_cli.artifact.files import load_memory
from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import FILE, read_results
from deepthink_cli.experiments.samples import read_texts, samples_path, texts_path


@pytest.fixture
def command(models: Models, tmp_path: Path) -> list[str]:
    """A small run: one task, two seeds, T = 3."""
    return run_words(tmp_path, models("llama"), "-T", "3", "--seeds", "2", "--quiet")


def rows_of(tmp_path: Path) -> bytes:
    return (tmp_path / "out" / FILE).read_bytes()


def test_a_run_has_one_row_for_every_seed_and_iteration(command: list[str], tmp_path: Path) -> None:
    assert run(command) == 0
    rows = read_results(tmp_path / "out")
    found = [(row.setting.iteration, row.setting.seed) for row in rows]
    assert found == [(t, s) for t in (1, 2, 3) for s in (0, 1)]  # short demonstrations are read in step
    assert {(row.n, row.shots_used, row.setting.protocol, row.groups[0]) for row in rows} == {(12, 4, "paper", "small")}
    assert all(sum(row.was_right()) == row.right == round(row.accuracy * row.n) for row in rows)


def test_a_row_is_what_think_and_eval_say(command: list[str], tmp_path: Path, capsys: Captured) -> None:
    run(command)
    last = read_results(tmp_path / "out")[-1]
    memory = str(tmp_path / "mem.safetensors")
    task = [*command[1:5], "-q"]
    assert run(["think", *task, "--seed", "1", *command[5:7], "-T", "3", "-o", memory]) == 0
    found = json_of(capsys, "eval", memory, *task, "--json")
    assert found["results"][-1]["accuracy"] == last.accuracy
    assert (found["task"], found["protocol"], found["n"]) == ("tiny", "paper", last.n)


def test_more_seeds_are_added_to_a_run(command: list[str], tmp_path: Path) -> None:
    run(command)
    before = rows_of(tmp_path)
    assert run([*command, "--seeds", "3"]) == 0
    assert rows_of(tmp_path).startswith(before)
    assert len(read_results(tmp_path / "out")) == 9


def test_only_chosen_iterations_are_scored_and_all_are_read(command: list[str], tmp_path: Path) -> None:
    assert run([*command, "--at", "1,3", "--seeds", "1"]) == 0
    chosen = read_results(tmp_path / "out")
    assert [row.setting.iteration for row in chosen] == [1, 3]
    assert run([*command, "--seeds", "1"]) == 0
    everything = {row.setting.iteration: row for row in read_results(tmp_path / "out")}
    assert sorted(everything) == [1, 2, 3]
    assert run([*command, "--seeds", "1", "-o", str(tmp_path / "all")]) == 0
    assert [row.line() for row in read_results(tmp_path / "all")] == [everything[t].line() for t in (1, 2, 3)]


def test_a_row_says_how_far_its_last_reading_moved_the_memory(command: list[str], tmp_path: Path) -> None:
    assert run([*command, "--eta", "0.1", "--seeds", "1"]) == 0
    memory = str(tmp_path / "mem.safetensors")
    words = [*command[1:5], "--eta", "0.1", *command[5:7], "-T", "3"]
    assert run(["think", *words, "-q", "-o", memory]) == 0
    drift = load_memory(memory).drift
    rows = read_results(tmp_path / "out")
    assert rows[0].drift is None
    assert [row.drift for row in rows[1:]] == [pytest.approx((each.mean_keys, each.mean_values)) for each in drift]


def test_samples_hold_every_inputs_scores(command: list[str], tmp_path: Path) -> None:
    assert run([*command, "--samples", "--seeds", "1"]) == 0
    row = read_results(tmp_path / "out")[-1]
    kept = pyarrow.parquet.read_table(samples_path(tmp_path / "out", row)).to_pylist()
    assert [one["label"] == one["gold"] for one in kept] == row.was_right()
    assert all(max(one["scores"]) == one["scores"][one["candidates"].index(one["label"])] for one in kept)


def test_samples_have_the_texts_of_their_inputs_once(command: list[str], tmp_path: Path) -> None:
    assert run([*command, "--samples"]) == 0
    rows = read_results(tmp_path / "out")
    (digest,) = {row.setting.rows_sha256 for row in rows}
    assert digest is not None
    texts = read_texts(tmp_path / "out", digest)
    samples = pyarrow.parquet.read_table(samples_path(tmp_path / "out", rows[0])).to_pylist()
    assert list(texts) == [sample["where"] for sample in samples]
    assert all(texts.values())
    written = texts_path(tmp_path / "out", digest).read_bytes()
    (tmp_path / "out" / FILE).unlink()
    (tmp_path / "out" / FILE).touch()
    assert run([*command, "--samples"]) == 0
    assert texts_path(tmp_path / "out", digest).read_bytes() == written


def test_given_demonstrations_stand_for_every_seeds(command: list[str], tmp_path: Path, demos: Path) -> None:
    demos.write_text(demos.read_text().replace('"review"', '"text"').replace('"sentiment"', '"kind"'))
    assert run([*command, "--seeds", "1", "--demos", str(demos)]) == 0
    assert {row.setting.sampling for row in read_results(tmp_path / "out")} == {"given"}
    assert run([*command, "--demos", str(demos)]) == 2


def test_a_folder_with_other_files_is_refused(command: list[str], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    assert "holds other files and no run" in refused(capsys, *command)


def test_queries_that_do_not_fit_are_skipped_and_counted(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "data" / "tiny" / "test.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, json.dumps({"body": "word " * 600, "kind": 1}) + "\n", *rest]))
    assert run([*command, "--seeds", "1"]) == 0
    row = read_results(tmp_path / "out")[0]
    assert (row.n, row.skipped, row.unscored) == (12, {"too long for the model": 1}, [1])


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--task", "agnew"], "did you mean agnews?"),
        (["--seeds", "0.5"], "--seeds 0.5: a number of seeds"),
        (["--eta", "0.01,2"], "--eta 2: gates are numbers in (0, 1]"),
        (["--choose-on", "test"], "--choose-on test"),
        (["--limit", "0"], "--limit 0: a number of rows"),
        (["--at", "1,4"], "--at 1,4: iterations run from 1 to 3; raise -T or name others"),
        (["--shots", "21"], "--shots 21: task tiny has 20 rows"),
    ],
)
def test_a_wrong_run_is_refused_and_writes_nothing(
    command: list[str], extra: list[str], message: str, tmp_path: Path, capsys: Captured
) -> None:
    assert message in refused(capsys, *command, *extra)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_would_be_done(command: list[str], tmp_path: Path, capsys: Captured) -> None:
    plan = json_of(capsys, *command, "--dry-run", "--json")
    assert (plan["jobs"], plan["rows"], plan["inputs"]) == (2, 6, 72)
    said = dict(
        line.split(maxsplit=1) for line in output(capsys, *command, "--dry-run", "--at", "1,3").splitlines() if line
    )
    assert (said["at"], said["jobs"], said["rows"], said["inputs"]) == ("1, 3", "2", "4", "48")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_estimates_the_time_of_what_is_missing(command: list[str], tmp_path: Path, capsys: Captured) -> None:
    assert re.search(r"time +about \d+ s, by a short probe\n", output(capsys, *command, "--dry-run"))
    assert run([*command, "--seeds", "1"]) == 0
    estimate = json_of(capsys, *command, "--dry-run", "--json")["estimate"]
    assert (estimate["rows"], estimate["inputs"]) == (3, 36)
    assert estimate["seconds"] > 0
    assert estimate["reason"] is None
    assert re.search(
        r"time +nothing to do: all rows are there already\n", output(capsys, *command, "--dry-run", "--seeds", "1")
    )


@pytest.mark.plugins
@pytest.mark.parametrize("more", [["--technique", "deep-thinking,ct-kv,ensemble-2"], ["--demos-by", "random,entropy"]])
def test_every_kind_of_job_is_estimated(command: list[str], more: list[str], tmp_path: Path, capsys: Captured) -> None:
    before = sorted(tmp_path.rglob("*"))
    plan = json_of(capsys, *command, *more, "--dry-run", "--json")
    assert (plan["estimate"]["rows"], plan["estimate"]["inputs"]) == (plan["rows"], plan["inputs"])
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_without_weights_says_why_there_is_no_estimate(
    command: list[str], models: Models, tmp_path: Path, capsys: Captured
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(models("llama"), bare, ignore=shutil.ignore_patterns("*.safetensors"))
    out = output(capsys, *command, "--dry-run", "-m", bare)
    assert re.search(r"^inputs +72$", out, re.MULTILINE)
    assert "not estimated: the weights are not on this machine, and a dry run downloads nothing\n" in out


def test_tasks_may_stand_in_a_configuration_file_or_the_environment(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(f'task = ["{command[2]}"]\nseeds = "1"\n')
    without = [*command[:1], *command[3:]]
    assert run([*without, "--config", str(config)]) == 0
    monkeypatch.setenv("DEEPTHINK_TASK", command[2])
    assert run(without) == 0
    assert {row.setting.task for row in read_results(tmp_path / "out")} == {"tiny"}


def test_dev_sets_of_different_size_are_different_settings(command: list[str], tmp_path: Path) -> None:
    for limit in ("5", "9"):
        assert run([*command, "--choose-on", "dev", "--limit", limit, "--seeds", "1"]) == 0
    sizes = [(row.setting.limit, row.n) for row in read_results(tmp_path / "out") if row.setting.part == "dev"]
    assert sorted(set(sizes)) == [(5, 5), (9, 9)]


def test_a_report_takes_its_format_from_the_files_name(command: list[str], tmp_path: Path) -> None:
    run(command)
    for name, start in (("x.md", "**"), ("x.csv", "model,"), ("x.json", "{")):
        assert run(["report", str(tmp_path / "out"), "-o", str(tmp_path / name), "-q"]) == 0
        assert (tmp_path / name).read_text().startswith(start), name


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


def test_given_demonstrations_are_not_in_the_dev_set(models: Models, tmp_path: Path) -> None:
    chosen = reviews("play", 20)[:2] + reviews("play", 20)[-2:]
    words = run_words(tmp_path, models("llama"), "-T", "1", "--choose-on", "dev:20", "--samples", "-q")
    assert run([*words, *given(tmp_path, chosen)]) == 0
    (row,) = [row for row in read_results(tmp_path / "out") if row.setting.part == "dev"]
    samples = pyarrow.parquet.read_table(samples_path(tmp_path / "out", row)).to_pylist()
    places = {int(sample["where"].rpartition(":")[2]) for sample in samples}
    assert places == set(range(3, 19))
