"""No command overwrites a file that it reads, under any name, or writes into a run's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.forks import Forks
from helpers.said import Captured
from helpers.tiny import run_files, run_words, tiny_task

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.experiments.results import FILE
from deepthink_cli.outputs import check_apart, check_memory_apart

ROWS: list[dict[str, object]] = [
    {"review": "a joy", "sentiment": "positive"},
    {"review": "dull", "sentiment": "negative"},
]


@pytest.fixture
def model(models: Models, tmp_path: Path) -> Path:
    """A copy of a tiny model."""
    return Path(shutil.copytree(models("llama"), tmp_path / "model"))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Labelled reviews."""
    return write_rows(tmp_path / "rows.jsonl", ROWS)


@pytest.fixture
def memory(model: Path, demos: Path, tmp_path: Path) -> Path:
    """A memory of the copied model."""
    path = tmp_path / "mem.safetensors"
    assert run(["think", str(demos), "-m", str(model), "-T", "1", "-q", "-o", str(path)]) == 0
    return path


@pytest.fixture
def finished(models: Models, tmp_path: Path) -> Path:
    """The folder of a run with one seed."""
    assert run(run_words(tmp_path, models("llama"), "-T", "2", "-q", "--samples")) == 0
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def no_weights(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of these tests load no weights; the other fixtures may."""
    for name in {"memory", "finished"} & set(request.fixturenames):
        request.getfixturevalue(name)
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", lambda _: pytest.fail("weights were loaded"))


def refuses(arguments: list[object], capsys: Captured, folder: Path) -> str:
    """The one-line error of a command, which must leave every file unchanged."""
    before = run_files(folder)
    capsys.readouterr()
    assert run(list(map(str, arguments))) == 2
    assert run_files(folder) == before
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("read", ["rows", "memory", "config"])
@pytest.mark.parametrize("command", ["predict", "eval"])
def test_scoring_refuses_to_write_over_what_it_reads(
    command: str, read: str, memory: Path, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('batch_tokens = "64"\n')
    target = {"rows": rows, "memory": memory, "config": config}[read]
    err = refuses([command, memory, rows, "--config", config, "-o", target], capsys, tmp_path)
    assert err == f"deepthink: -o {target}: the same file as {target}, which this command reads; name another file\n"


def test_think_refuses_to_write_over_its_demonstrations(
    model: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert "the same file" in refuses(["think", demos, "-m", model, "-o", demos], capsys, tmp_path)


def test_think_refuses_to_write_over_its_template(model: Path, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    template = tmp_path / "template.txt"
    template.write_text("{review}: {sentiment}\n")
    words = ["think", demos, "-m", model, "--template", template, "-o", template]
    assert "the same file" in refuses(words, capsys, tmp_path)


@pytest.mark.parametrize("name", ["symbolic", "hard", "dotted", "data/../rows.jsonl"])
def test_another_name_is_no_way_around(name: str, memory: Path, rows: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "symbolic").symlink_to(rows)
    (tmp_path / "hard").hardlink_to(rows)
    (tmp_path / "dotted").symlink_to("data/../rows.jsonl")
    assert "the same file" in refuses(["predict", memory, rows, "-o", tmp_path / name], capsys, tmp_path)


def test_a_read_link_is_no_way_around_either(memory: Path, rows: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "link.jsonl").symlink_to(rows)
    assert "the same file" in refuses(["predict", memory, tmp_path / "link.jsonl", "-o", rows], capsys, tmp_path)


def test_a_redirected_input_is_not_written_over(memory: Path, rows: Path, forks: Forks) -> None:
    before = rows.read_bytes()
    with rows.open() as given:
        code, said = forks.run(["predict", str(memory), "-", "-o", str(rows)], stdin=given.fileno())
    assert (code, rows.read_bytes()) == (2, before)
    assert f"-o {rows}: the same file as standard input" in said


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_model_is_not_written_over(file: str, model: Path, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    err = refuses(["think", demos, "-m", model, "-o", model / file], capsys, tmp_path)
    assert f"a file of {model}, which this command reads; name a new file" in err


def test_the_model_that_a_memory_names_is_not_written_over(
    memory: Path, rows: Path, model: Path, tmp_path: Path, capsys: Captured
) -> None:
    (model / "list.csv").touch()
    assert "a file of" in refuses(["predict", memory, rows, "-o", model / "list.csv"], capsys, tmp_path)
    assert "a file of" in refuses(["eval", memory, rows, "-o", model / "list.csv"], capsys, tmp_path)


def test_weights_that_are_links_are_not_written_over(
    model: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    weights = (model / "model.safetensors").rename(tmp_path / "blob")
    (model / "model.safetensors").symlink_to(weights)
    assert "a file of" in refuses(["think", demos, "-m", model, "-o", weights], capsys, tmp_path)


def test_a_memory_in_the_models_folder_may_be_made_again(
    model: Path, demos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(model)
    for iterations in ("1", "2"):
        assert run(["think", str(demos), "-m", ".", "-q", "-T", iterations]) == 0
    assert read_header("memory.safetensors").metadata.iterations == 2


@pytest.mark.parametrize("file", ["tiny.yaml", "data/tiny/train.jsonl", "data/tiny/test.jsonl"])
def test_a_task_is_not_written_over(file: str, model: Path, tmp_path: Path, capsys: Captured) -> None:
    task, data = tiny_task(tmp_path)
    words = ["think", "--task", task, "--data-dir", data, "-m", model, "-o", tmp_path / file]
    assert "which this command reads" in refuses(words, capsys, tmp_path)


@pytest.mark.parametrize("file", [FILE, "new.txt", "samples/new.txt"])
def test_nothing_but_a_run_writes_into_its_folder(
    file: str, finished: Path, memory: Path, rows: Path, demos: Path, model: Path, tmp_path: Path, capsys: Captured
) -> None:
    for words in (
        ["think", demos, "-m", model, "-o"],
        ["predict", memory, rows, "-o"],
        ["eval", memory, rows, "-o"],
        ["report", finished, "-o"],
    ):
        err = refuses([*words, finished / file], capsys, tmp_path)
        assert f"{finished} holds a run, and only deepthink run writes there; name a file elsewhere" in err


def test_a_run_that_was_copied_without_its_lock_is_still_one(
    finished: Path, memory: Path, rows: Path, tmp_path: Path, capsys: Captured
) -> None:
    (finished / ".lock").unlink()
    for words in (["report", finished], ["predict", memory, rows]):
        assert "holds a run" in refuses([*words, "-o", finished / "report.md"], capsys, tmp_path)
    (tmp_path / FILE).write_text('{"index": 0}\n')
    check_apart(tmp_path / FILE, [])


@pytest.mark.plugins
def test_a_run_takes_figures_but_not_over_its_rows(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(["plot", str(finished), "-q"]) == run(["plot", str(finished), "-q"]) == 0
    for link, file in (("rows.png", finished / FILE), ("sample.png", next((finished / "samples").iterdir()))):
        (tmp_path / link).symlink_to(file)
        refuses(["plot", finished, "-o", tmp_path / link], capsys, tmp_path)


def test_a_run_does_not_write_where_it_reads(
    models: Models, finished: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = ["run", "--task", tmp_path / "tiny.yaml", "--data-dir", tmp_path / "data", "-m", models("llama")]
    given = finished / "demos.jsonl"
    given.write_bytes(demos.read_bytes())
    assert f"-o {finished}: holds {given}" in refuses([*words, "--demos", given, "-o", finished], capsys, tmp_path)
    (tmp_path / "data" / "tiny" / FILE).touch()
    err = refuses([*words, "-o", tmp_path / "data" / "tiny"], capsys, tmp_path)
    assert f"holds {tmp_path / 'data' / 'tiny'}, which this command reads; name a new folder" in err


def test_rows_that_are_a_link_to_the_inputs_are_not_appended_to(
    models: Models, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = run_words(tmp_path, models("llama"), "--demos", str(demos))
    (tmp_path / "out").mkdir()
    os.link(demos, tmp_path / "out" / FILE)
    assert "which this command reads" in refuses([*words], capsys, tmp_path)


def test_a_file_that_holds_no_rows_of_a_run_is_left_whole(models: Models, tmp_path: Path, capsys: Captured) -> None:
    words = run_words(tmp_path, models("llama"), "-q")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / FILE).write_text('{"text": "one"}\n{"text": "two"}')
    assert "not a row of a run" in refuses([*words], capsys, tmp_path)


def test_a_memory_replaces_memories_and_empty_files_alone(
    memory: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    labels, empty = tmp_path / "labels.csv", tmp_path / "empty"
    labels.write_text("text,label\n")
    empty.touch()
    err = refuses(["think", demos, "-o", labels], capsys, tmp_path)
    assert f"-o {labels}: exists, and is not a memory; remove it, or name another file" in err
    for path in (memory, empty, tmp_path / "new"):
        check_memory_apart(path, [])
