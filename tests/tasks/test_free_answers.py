"""Tasks whose answers are generated: what is compared, judges, eval and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_rows
from helpers.said import Captured, json_of, output, refused

from deepthink_cli.cli.main import run
from deepthink_cli.data.source import Row
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.results import read_results
from deepthink_cli.tasks.catalogue import built_in, digest, find_tasks
from deepthink_cli.tasks.files import read_tasks
from deepthink_cli.tasks.format import Free, Task
from deepthink_cli.tasks.items import DoesNotFit, query_of
from deepthink_cli.tasks.judges import JUDGES, ExactMatch, check_may_run

SUMS: list[dict[str, object]] = [
    {"question": f"What is {n} + {n}?", "answer": f"{n} + {n} = {2 * n}.\n#### {2 * n}"} for n in range(500, 512)
]


def given_answer(free: Free, text: str) -> str:
    _, given = ExactMatch().answers(free, "", text, {})
    return given


def free_of(name: str) -> Free:
    free = built_in()[name].free
    assert free is not None
    return free


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [
        ("gsm8k", " 3 * 4 = 12.\n#### 1,012", "1012"),
        ("gsm8k", "#### 3\n#### $40.", "40"),
        ("gsm8k", "the answer is 12", ""),
        ("bbh-free/object_counting", " 6", "6"),
        ("bbh-free/object_counting", " There are 2 + 1. So the answer is 3.\nQ: 7", "3"),
        ("bbh-free/multistep_arithmetic_two", "-1,120", "-1120"),
        ("bbh-free/word_sorting", " Apple pear.\nmore", "apple pear"),
        ("bbh-free/dyck_languages", "] ) }", "])}"),
        ("bbh-free/reasoning_about_colored_objects", " (C) red", "(C)"),
    ],
)
def test_the_answer_is_found_in_a_text(task: str, text: str, answer: str) -> None:
    assert given_answer(free_of(task), text) == answer


@pytest.mark.parametrize("name", ["gsm8k", "bbh-free"])
def test_the_true_answer_written_as_in_a_demonstration_is_right(name: str) -> None:
    for task in find_tasks([name]):
        assert task.free is not None
        gold = query_of(task, Row(task.example, "example")).gold
        assert gold is not None
        true, given = ExactMatch().answers(task.free, gold, gold, {})
        assert given == true != ""


def test_programs_are_refused_where_nothing_judges_them(monkeypatch: pytest.MonkeyPatch) -> None:
    check_may_run(built_in()["gsm8k"], run_code=False)
    monkeypatch.setattr(JUDGES, "_objects", {"exact": JUDGES["exact"]})
    check_may_run(built_in()["gsm8k"], run_code=False)
    with pytest.raises(InputError, match="task mbpp: its answers need the judge 'program', which is not installed"):
        check_may_run(built_in()["mbpp"], run_code=True)


def test_a_row_whose_answer_has_not_the_form_of_the_task_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match="does not match the task's pattern"):
        query_of(built_in()["gsm8k"], Row({"question": "a", "answer": "7"}, "x:1"))


def _folder(data: Path, name: str) -> Path:
    (data / name).mkdir(parents=True, exist_ok=True)
    return data / name


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in GSM8K's layout."""
    folder = tmp_path_factory.mktemp("data")
    write_rows(_folder(folder, "gsm8k") / "train.jsonl", SUMS[:8])
    write_rows(_folder(folder, "gsm8k") / "test.jsonl", SUMS[8:])
    return folder


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GSM8K with few tokens, as a task file."""
    import yaml

    definition = built_in()["gsm8k"].model_dump(exclude_none=True, exclude_defaults=True)
    definition["free"]["max_new_tokens"] = 6
    path = tmp_path_factory.mktemp("task") / "short.yaml"
    path.write_text(yaml.safe_dump(definition))
    return path


def _think(models: Models, data: Path, short: Path, folder: Path) -> Path:
    path = folder / "mem.safetensors"
    words = ["think", "--task", str(short), "--data-dir", str(data), "--shots", "2", "-m", str(models("llama"))]
    assert run([*words, "-T", "2", "--keep", "all", "-q", "-o", str(path)]) == 0
    return path


def test_eval_measures_exact_match(models: Models, data: Path, short: Path, tmp_path: Path, capsys: Captured) -> None:
    memory, samples = _think(models, data, short, tmp_path), tmp_path / "samples.jsonl"
    words = ["eval", str(memory), "--task", str(short), "--data-dir", str(data), "-q"]
    report = json_of(capsys, *words, "-o", samples, "--json")
    assert (report["n"], report["chance"], report["majority"]) == (4, 0.0, None)
    assert [row["iteration"] for row in report["results"]] == [1, 2]
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert rows[0]["gold"] == str(2 * 508)
    assert {"answer", "right", "text"} <= rows[0].keys()
    assert report["results"][0]["accuracy"] == sum(row["right"] for row in rows if row["iteration"] == 1) / 4
    assert "demonstrations_among_rows" not in report
    assert "Generated answers" in output(capsys, *words)


def test_evaluated_questions_that_are_demonstrations_are_reported_apart(
    models: Models, data: Path, short: Path, tmp_path: Path, capsys: Captured
) -> None:
    memory = _think(models, data, short, tmp_path)
    mixed = write_rows(_folder(tmp_path, "gsm8k") / "test.jsonl", SUMS).parents[1]
    assert (
        json_of(capsys, "eval", memory, "--task", short, "--data-dir", mixed, "-q", "--json")[
            "demonstrations_among_rows"
        ]["rows"]
        == 2
    )


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--calibrate", "contextual"], "task gsm8k has free answers"),
        (["--score", "mean"], "--score mean: task gsm8k has free answers"),
        (["--html", "page.html"], "task gsm8k has free answers"),
    ],
)
def test_options_of_scores_are_refused(
    more: list[str],
    told: str,
    models: Models,
    data: Path,
    short: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    monkeypatch.chdir(tmp_path)
    memory = _think(models, data, short, tmp_path)
    line = refused(capsys, "eval", memory, "--task", short, "--data-dir", data, "-q", *more)
    assert told in line


def test_a_run_has_rows_of_free_answers_and_continues(
    models: Models, data: Path, short: Path, tmp_path: Path, capsys: Captured
) -> None:
    words = ["run", "--task", str(short), "--data-dir", str(data), "-m", str(models("gpt2")), "-T", "2", "-q"]
    words += ["--shots", "2", "-o", str(tmp_path / "out")]
    assert run([*words, "--samples"]) == 0
    rows = read_results(tmp_path / "out")
    assert [(row.setting.iteration, row.n, row.chance, row.majority) for row in rows] == [
        (1, 4, 0, None),
        (2, 4, 0, None),
    ]
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert run(words) == 0
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
    assert "gsm8k" in output(capsys, "report", tmp_path / "out")


def test_a_run_names_what_free_answers_cannot_have(data: Path, short: Path, tmp_path: Path, capsys: Captured) -> None:
    words = ["run", "--task", str(short), "--data-dir", str(data), "-o", str(tmp_path / "out"), "-q"]
    line = refused(capsys, *words, "--calibrate", "batch")
    assert line.endswith("task gsm8k has free answers, without scores; run it without this option")


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("free", "told"),
    [
        ({"extract": "a"}, "extract: needs a group"),
        ({"program": "x"}, "program: must contain {answer} once"),
        ({"program": "{answer}\n"}, "program: nothing follows {answer} that tests it"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"ignore": ["all"]}, "ignore"),
        ({"judge": "exact", "program": "{answer}\n{tests}"}, "no other does; omit one"),
    ],
)
def test_a_wrong_definition_is_named(free: dict[str, Any], told: str) -> None:
    definition = {**built_in()["gsm8k"].model_dump(), "free": free}
    with pytest.raises(ValueError, match=told):
        Task.model_validate(definition)


def test_a_judge_that_is_not_installed_is_named_with_its_line(tmp_path: Path) -> None:
    definition = built_in()["gsm8k"].model_dump(exclude_none=True)
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({**definition, "free": {"judge": "nobody"}}))
    with pytest.raises(InputError, match=r"mine\.yaml:1: gsm8k: its answers need the judge 'nobody', which is not"):
        read_tasks(path)


def test_digests_of_other_tasks_do_not_depend_on_free_answers() -> None:
    assert built_in()["sst2"].free is None
    assert digest(built_in()["sst2"]) == digest(Task.model_validate(built_in()["sst2"].model_dump()))


def test_a_pattern_that_would_need_years_on_a_text_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepthink_cli.tasks.format.SECONDS", 0.2, raising=False)
    slow, quick = (free_of("gsm8k").model_copy(update={"extract": each}) for each in (r"((?:a|aa)+)!$", r"((?:a+)+)!$"))
    assert given_answer(slow, "aaa!") == given_answer(quick, "b aaa!") == "aaa"
    assert given_answer(quick, "a" * 200) == ""  # repetitions of repetitions are no harm in themselves
    with pytest.raises(InputError, match=r"^pattern .*: takes more than 0\.2 s on a text of 200 characters; write it"):
        given_answer(slow, "a" * 200)
