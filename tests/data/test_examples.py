"""Rows become demonstrations and queries, or are refused by field, file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepthink_cli.data.examples import (
    DemonstrationSet,
    Example,
    Query,
    Skipped,
    queries_or_skipped,
    read_demonstrations,
    read_queries,
)
from deepthink_cli.data.template import Template, text_value
from deepthink_cli.errors import InputError

TEMPLATE = Template("Text: {text}\nLabel: {label}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def demonstrations(path: Path, *rows: dict[str, Any], **options: Any) -> DemonstrationSet:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_demonstrations(str(path), **options)


def refusals(path: Path, *rows: dict[str, Any], **options: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        demonstrations(path, *rows, **options)
    return caught.value.messages


def query_refusal(
    path: Path, row: dict[str, Any], labels: tuple[str, ...] = ("yes", "no"), labelled: bool = False
) -> str:
    path.write_text(json.dumps(row))
    with pytest.raises(InputError) as caught:
        list(read_queries(str(path), TEMPLATE, labels, labelled))
    return str(caught.value)


def row(text: Any, label: Any, **more: Any) -> dict[str, Any]:
    return {"text": text, "label": label, **more}


def test_the_field_names_of_the_first_row_are_the_template(path: Path) -> None:
    given = demonstrations(path, {"review_text": "fine", "verdict": "good"}, {"review_text": "poor", "verdict": "bad"})
    assert given.template.pattern == "Review text: {review_text}\nVerdict: {verdict}"
    assert given.examples == (Example("fine", "good"), Example("poor", "bad"))
    assert given.labels == ("good", "bad")


def test_the_label_field_may_stand_anywhere(path: Path) -> None:
    given = demonstrations(path, {"y": "a", "x": "1"}, {"y": "b", "x": "2"}, label_field="y", separator="\n")
    assert given.template == Template("X: {x}\nY: {y}", "\n")
    assert given.examples == (Example("1", "a"), Example("2", "b"))


def test_several_text_fields_stay_apart(path: Path) -> None:
    given = demonstrations(path, {"a": " 1", "b": "2 ", "y": "p"}, {"a": "3", "b": "4", "y": "q"})
    assert given.examples[0] == Example({"a": "1", "b": "2"}, "p")


def test_a_template_chooses_among_the_fields(path: Path) -> None:
    given = demonstrations(path, row("a", "x", id=1), row("b", "y", id=2), pattern="{text} -> {label}")
    assert given.template == Template("{text} -> {label}")
    assert given.examples == (Example("a", "x"), Example("b", "y"))


def test_given_labels_keep_their_order_and_may_be_more_than_those_seen(path: Path) -> None:
    given = demonstrations(path, row("a", "yes"), labels=["no", "perhaps", "yes"])
    assert given.labels == ("no", "perhaps", "yes")


def test_a_set_made_in_python_takes_the_labels_it_sees() -> None:
    made = DemonstrationSet.of([Example("a", "q"), Example("b", "p"), Example("c", "q")], "{t}: {y}")
    assert (made.labels, made.template) == (("q", "p"), Template("{t}: {y}"))
    assert DemonstrationSet.of(made.examples, made.template, ["p", "q"]).labels == ("p", "q")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1, 2], ("1", "2")),
        ([True, False], ("true", "false")),
        ([0.5, -1], ("0.5", "-1")),
        ([" a ", "b\n"], ("a", "b")),
    ],
)
def test_numbers_and_booleans_are_labels_as_json_writes_them(
    path: Path, labels: list[Any], words: tuple[str, ...]
) -> None:
    given = demonstrations(path, row("t", labels[0]), row(7, labels[1]))
    assert given.labels == words
    assert given.examples[1] == Example("7", words[1])


def test_a_label_field_must_be_the_templates_last(path: Path) -> None:
    messages = refusals(path, row("a", "x"), pattern="{label}: {text}", label_field="label")
    assert messages == ("label_field label: the template ends with {text}; end it with {label}",)


def test_demonstrations_with_candidates_of_their_own_share_no_labels(path: Path) -> None:
    first, second = row("a", "x", candidates=["x", "y"]), row("b", "w", candidates=["v", "w"])
    given = demonstrations(path, first, second)
    assert given.labels == ()
    assert given.template.pattern == "Text: {text}\nLabel: {label}"


def test_a_demonstrations_own_candidates_go_before_the_labels(path: Path) -> None:
    given = demonstrations(path, row("a", "x", candidates=["x", "y"]), row("b", "z"), labels=["z", "w"])
    assert given.labels == ("z", "w")


def test_a_query_takes_the_memorys_labels_unless_it_has_candidates(path: Path) -> None:
    path.write_text('{"text": "a", "id": 7}\n{"text": "b", "candidates": [1, 2]}\n')
    first, second = read_queries(str(path), TEMPLATE, ["yes", "no"])
    assert (first.text, first.candidates, first.gold, first.where) == ("a", ("yes", "no"), None, f"{path}:1")
    assert first.fields == {"text": "a", "id": 7}
    assert second.candidates == ("1", "2")


def test_a_query_without_any_candidates_is_refused(path: Path) -> None:
    hint = 'this memory has no label words, add "candidates": [...]'
    assert query_refusal(path, {"text": "a"}, labels=()) == f"{path}:1: no candidates; {hint}"


def test_labelled_queries_need_their_label(path: Path) -> None:
    message = query_refusal(path, {"text": "a", "gold": "yes"}, labelled=True)
    assert (
        message
        == f"{path}:1: field 'label' is missing; the row has text, gold; add it, or rename the field that holds it"
    )
    message = query_refusal(path, row("a", "Yes"), labelled=True)
    assert message == f"{path}:1: label 'Yes' is not one of yes, no; did you mean 'yes'?"


def test_bad_queries_are_skipped_while_the_good_ones_go_on(path: Path) -> None:
    path.write_text('{"text": "a"}\n{"text": ""}\nwrong\n{"text": "b"}\n')
    rows = list(queries_or_skipped(str(path), TEMPLATE, ["yes", "no"]))
    assert [row.text for row in rows if isinstance(row, Query)] == ["a", "b"]
    assert [row.error.split(": ")[0] for row in rows if isinstance(row, Skipped)] == [f"{path}:2", f"{path}:3"]


@pytest.mark.parametrize("field", ["text", "candidates"])
def test_a_text_may_have_a_mebibyte_and_no_more(path: Path, field: str) -> None:
    def queries(text: str) -> list[Query]:
        row = {"text": "x", "candidates": ["a", "b"], "unused": text, "label": "a"}
        row[field] = text if field == "text" else ["a", text]
        path.write_text(json.dumps(row))
        return list(read_queries(str(path), Template("{text}: {label}"), (), labelled=True))

    assert len(queries(" " + "é" * 2**19)) == 1
    with pytest.raises(InputError, match=rf"rows.jsonl:1: '{field}' has 1,048,577 bytes, at most 1,048,576 are read; "):
        queries("é" * 2**19 + "x")


def test_many_rows_with_the_same_mistake_are_one_line_that_proposes_what_was_meant(tmp_path: Path) -> None:
    rows = [{"Text": f"note {number}", "label": "Billing"} for number in range(20)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError) as caught:
        read_demonstrations(str(path), "{text}: {label}", labels=["billing", "account"])
    where = f"{path}:1 and 19 more, the last {path}:20"
    assert caught.value.messages == (
        f"{where}: field 'text' is missing; the row has Text, label; did you mean 'Text'? "
        "Read it as 'text' with map Text=text",
        f"{where}: label 'Billing' is not one of billing, account; did you mean 'billing'?",
    )


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(InputError, match=r"^here: 'a' holds the lone surrogate '\\udc80'; remove it$"):
        text_value("x\udc80", "here", "a")
