"""Task files: what they may say, what becomes of a row, and the names they go by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.tiny import MINE

from deepthink_cli.data.source import Row
from deepthink_cli.errors import InputError
from deepthink_cli.tasks.catalogue import built_in, digest, find_task, find_tasks, groups
from deepthink_cli.tasks.files import read_tasks
from deepthink_cli.tasks.format import Task
from deepthink_cli.tasks.items import DoesNotFit, query_of

CHOICES = {"labels": None, "candidates": {"column": "options"}, "answer": "right"}


def write(path: Path, **changes: Any) -> Path:
    """A task file: MINE with changes; None takes a field away."""
    content = {key: value for key, value in {**MINE, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def row(**fields: Any) -> Row:
    return Row(fields, "row")


def test_the_catalogue_has_the_papers_tasks_and_the_official_codes() -> None:
    sizes = {name: len(members) for name, members in groups().items()}
    assert (sizes["classic"], sizes["mmlu"], sizes["bbh"]) == (5, 57, 22)
    assert (sizes["mmlu-letters"], sizes["bbh-letters"]) == (57, 22)
    assert [sizes[f"mmlu/{kind}"] for kind in ("stem", "humanities", "social_sciences", "others")] == [18, 13, 12, 14]
    more = {"arc-easy", "arc-challenge", "copa", "csqa", "hellaswag", "obqa", "qasc", "winogrande"}
    assert more | {"mnli", "qnli", "snli", "mrpc", "subj", "emoc"} <= set(built_in())


def test_the_papers_shots() -> None:
    shots = {
        name: built_in()[name].shots for name in ("sst2", "sst5", "trec", "mr", "agnews", "mmlu/virology", "bbh/snarks")
    }
    assert list(shots.values()) == [8, 10, 12, 8, 8, 5, 3]


@pytest.mark.parametrize("name", list(built_in()))
def test_a_tasks_example_is_a_row_of_it(name: str) -> None:
    task = built_in()[name]
    query = query_of(task, row(**task.example), any_number=True)
    assert query.gold in query.candidates or (task.free is not None and query.gold and not query.candidates)


def test_a_group_stands_for_its_tasks_each_once() -> None:
    assert [task.name for task in find_tasks(["classic", "sst2"])] == ["sst2", "sst5", "trec", "mr", "agnews"]


def test_a_member_is_found_by_its_own_name() -> None:
    assert find_task("astronomy").name == "mmlu/astronomy"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("agnew", "did you mean agnews?"), ("mmlu/astronmy", "mmlu/astronomy"), ("qqqq", "deepthink tasks lists them")],
)
def test_an_unknown_task_gets_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint.replace("?", r"\?")):
        find_task(name)


def test_one_task_is_asked_for_and_a_group_given() -> None:
    with pytest.raises(InputError, match="a group of 57 tasks"):
        find_task("mmlu")


def test_a_task_file_is_a_task(tmp_path: Path) -> None:
    task = find_task(str(write(tmp_path / "mine.yaml")))
    query = query_of(task, row(body=" some text ", kind="bad"))
    assert (query.text, query.gold, query.candidates) == ("some text", "bad", ("good", "bad"))


def test_a_family_fills_in_its_members(tmp_path: Path) -> None:
    path = write(
        tmp_path / "family.yaml", folder="family/{member}", members={"one": {}, "two": {"shots": 5, "category": "odd"}}
    )
    one, two = read_tasks(path)
    assert (one.name, one.folder, two.shots, two.groups) == ("mine/one", "family/one", 5, ["mine/odd"])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"body": "a", "kind": "ugly"}, "the answer is no candidate"),
        ({"body": "a", "kind": 2}, "the answer is no candidate"),
        ({"body": "a", "kind": -1}, "no answer"),
        ({"body": " ", "kind": 0}, "no text"),
        ({"body": "a"}, "no column 'kind'"),
        ({"body": 3, "kind": 0}, "must be a string"),
    ],
)
def test_a_row_that_does_not_fit_says_why(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    task = find_task(str(write(tmp_path / "mine.yaml")))
    with pytest.raises(DoesNotFit, match=reason):
        query_of(task, Row(fields, "row"))


@pytest.mark.parametrize(("answer", "label"), [(0, "good"), ("1", "bad"), ("good", "good")])
def test_an_answer_is_a_number_or_a_word(tmp_path: Path, answer: object, label: str) -> None:
    task = find_task(str(write(tmp_path / "mine.yaml")))
    assert query_of(task, row(body="a", kind=answer)).gold == label


def test_candidates_of_the_same_words_are_one(tmp_path: Path) -> None:
    task = find_task(str(write(tmp_path / "mine.yaml", **CHOICES)))
    query = query_of(task, row(body="a", options=["x", "y", "x "], right=2))
    assert (query.candidates, query.gold) == (("x", "y"), "x")


def test_a_row_with_another_number_of_candidates_does_not_fit(tmp_path: Path) -> None:
    counted = {**CHOICES, "candidates": {"column": "options", "number": 3}}
    task = find_task(str(write(tmp_path / "mine.yaml", **counted)))
    with pytest.raises(DoesNotFit, match="2 candidates, not 3"):
        query_of(task, row(body="a", options=["x", "y"], right=0))
    assert query_of(task, row(body="a", options=["x", "y"], right=0), any_number=True).gold == "x"


def test_options_leave_the_question_and_the_rightmost_block_counts() -> None:
    text = "What?\nOptions:\n(A) no block\n\nReally?\nOptions:\n(A) one, two\n(B) three"
    query = query_of(built_in()["bbh/snarks"], row(input=text, target="(B)"), any_number=True)
    assert query.text == "What?\nOptions:\n(A) no block\n\nReally?"
    assert query.gold == "three"


def test_titles_and_groups_do_not_change_a_tasks_digest() -> None:
    task = built_in()["sst2"]
    assert digest(task) == digest(task.model_copy(update={"title": "Other", "groups": []}))
    assert digest(task) != digest(task.model_copy(update={"template": "{text}: {label}"}))


GOLDEN = Path(__file__).parent.parent / "golden"
FAMILIES = {
    "mmlu": "mmlu/astronomy",
    "mmlu-letters": "mmlu-letters/astronomy",
    "bbh": "bbh/snarks",
    "bbh-letters": "bbh-letters/snarks",
    "bbh-fixed": "bbh/formal_fallacies",
    "bbh-plain": "bbh/boolean_expressions",
    "bbh-free": "bbh-free/word_sorting",
    "bbh-letters-fixed": "bbh-letters/navigate",
}
NAMES = {**{name: name for name in built_in() if "/" not in name}, **FAMILIES}


def prompts(task: Task) -> bytes:
    """What the model reads for the task's example row: as two demonstrations, as a query, and its candidates."""
    query = query_of(task, Row(task.example, "example"), any_number=True)
    assert query.gold is not None
    text = task.prompt.demonstrations([(query.text, query.gold)] * 2)
    parts = [text, task.prompt.query(query.text), "\n".join(query.candidates)]
    return "=== demonstrations\n{}=== query\n{}\n=== candidates\n{}\n".format(*parts).encode()


@pytest.mark.parametrize("golden", sorted(NAMES))
def test_a_prompt_is_the_golden_one_to_the_byte(golden: str) -> None:
    assert prompts(built_in()[NAMES[golden]]) == (GOLDEN / f"{golden}.txt").read_bytes()


def test_every_golden_file_belongs_to_a_task() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(NAMES)
