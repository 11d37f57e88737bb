"""`deepthink tasks`, and tasks in `think` and `eval`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Models, shared
from helpers.said import Captured, json_of, output, refused
from helpers.tiny import tiny_task

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.tasks.catalogue import built_in, groups
from deepthink_cli.tasks.files import read_tasks


def test_the_list_fits_one_screen_and_with_its_groups_names_every_task(capsys: Captured) -> None:
    lines = output(capsys, "tasks").splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    listed = "\n".join([*lines, *(output(capsys, "tasks", group) for group in groups() if group in "\n".join(lines))])
    assert all(name in listed for name in built_in())
    assert len(json_of(capsys, "tasks", "--json")) == len(built_in())


def test_a_task_is_shown_with_its_prompt_splits_source_and_licence(capsys: Captured) -> None:
    shown = output(capsys, "tasks", "agnews")
    for part in (
        "Article: {text}",
        "World, Sports, Business, Technology",
        "8 of split train",
        "7,600 rows",
        "2,000 rows",
        "fancyzhx/ag_news at eb185aa",
        "licence",
        "Category: World",
    ):
        assert part in shown


def test_a_group_is_a_table(capsys: Captured) -> None:
    assert output(capsys, "tasks", "mmlu/stem").count("mmlu/") == 18


def test_rows_are_counted_from_the_data(capsys: Captured) -> None:
    counted = json_of(capsys, "tasks", "trec", "--data-dir", str(shared("data")), "--json")["counted"]["paper"]
    assert (counted["rows"], counted["labels"]["Entity"], counted["left_out"]) == (500, 94, {"also in test": 10})


def test_a_task_whose_example_does_not_fit_is_not_shown(tmp_path: Path, capsys: Captured) -> None:
    path, _ = tiny_task(tmp_path, example={"body": "a"})
    error = refused(capsys, "tasks", path)
    assert re.fullmatch(rf"deepthink: {path}:\d+: tiny: its example does not fit the task: no column 'kind'", error)


@pytest.mark.parametrize("name", ["agnew", "nowhere.yaml"])
def test_an_unknown_task_is_a_usage_error(name: str, capsys: Captured) -> None:
    assert refused(capsys, "tasks", name).startswith(f"deepthink: {name}: no such task")


@pytest.fixture
def memory(models: Models, tmp_path: Path) -> tuple[Path, list[str]]:
    """A memory of the tiny task, and the options that name the task."""
    task, data = tiny_task(tmp_path)
    named = ["--task", str(task), "--data-dir", str(data)]
    path = tmp_path / "mem.safetensors"
    assert run(["think", *named, "-m", str(models("llama")), "--seed", "3", "-T", "2", "-o", str(path), "-q"]) == 0
    return path, named


def test_a_memory_records_its_task_seed_and_shots(memory: tuple[Path, list[str]]) -> None:
    metadata = read_header(memory[0]).metadata
    assert (metadata.task, metadata.seed, metadata.shots, metadata.labels) == ("tiny", 3, 4, ["negative", "positive"])


def test_eval_takes_rows_and_labels_from_the_task(memory: tuple[Path, list[str]], capsys: Captured) -> None:
    path, named = memory
    found = json_of(capsys, "eval", path, *named, "--json", "--protocol", "official", "-q")
    assert (found["split"], found["protocol"], found["n"], found["skipped"]) == ("test", "official", 6, {})


def test_eval_samples_a_file_too(memory: tuple[Path, list[str]], tmp_path: Path, capsys: Captured) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"film {n}", "kind": "positive"}) + "\n" for n in range(9)))
    assert json_of(capsys, "eval", memory[0], rows, "--limit", "4", "--json", "-q")["n"] == 4


def test_eval_refuses_a_memory_of_other_labels(memory: tuple[Path, list[str]], capsys: Captured) -> None:
    error = refused(capsys, "eval", memory[0], "--task", "agnews")
    assert "made for the labels negative, positive; task agnews has World" in error


def test_eval_refuses_a_memory_of_other_fields(
    memory: tuple[Path, list[str]], tmp_path: Path, capsys: Captured
) -> None:
    path, data = tiny_task(tmp_path / "other", template="{one} {two}: {kind}", fields={"one": "body", "two": "body"})
    error = refused(capsys, "eval", memory[0], "--task", path, "--data-dir", data)
    assert "asks for text; task tiny has one, two" in error


def test_eval_warns_of_demonstrations_among_the_rows(models: Models, tmp_path: Path, capsys: Captured) -> None:
    task, data = tiny_task(tmp_path)
    demos = tmp_path / "demos.jsonl"
    demos.write_text('{"text": "a warm film 0", "kind": "positive"}\n{"text": "new", "kind": "negative"}\n')
    named = ["--task", str(task), "--data-dir", str(data)]
    path = str(tmp_path / "mem.safetensors")
    assert run(["think", str(demos), *named, "-m", str(models("llama")), "-o", path, "-q"]) == 0
    run(["eval", path, *named])
    assert re.search(r"warning: 1 of \d+ rows are among the demonstrations of ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["think"], "DEMOS: no demonstrations"),
        (["think", "--task", "classic"], "a group of 5 tasks"),
        (["think", "--task", "sst2", "--data-dir", "/nowhere"], "--data-dir /nowhere: no such directory"),
    ],
)
def test_task_options_that_do_not_go_together(arguments: list[str], message: str, capsys: Captured) -> None:
    assert run(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_data_directory_in_the_environment_is_no_mistake(
    memory: tuple[Path, list[str]], demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPTHINK_DATA_DIR", memory[1][3])
    assert run(["eval", str(memory[0]), *memory[1][:2], "-q"]) == 0
    assert run(["think", str(demos), "-T", "1", "-o", str(tmp_path / "other.safetensors"), "-q"]) == 0


def test_tasks_whose_rows_are_not_there_are_listed_and_named(tmp_path: Path, capsys: Captured) -> None:
    assert run(["tasks", "copa", "--data-dir", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "{premise} {link} {answer}" in captured.out
    assert "the rows could not be counted" in captured.err


def test_several_tasks_are_no_task_file(capsys: Captured) -> None:
    assert "--yaml: bbh is 22 tasks" in refused(capsys, "tasks", "bbh", "--yaml")


def test_a_printed_task_file_is_the_task(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "copy.yaml"
    path.write_text(output(capsys, "tasks", "bbh/snarks", "--yaml"), encoding="utf-8")
    assert read_tasks(path) == [built_in()["bbh/snarks"]]
