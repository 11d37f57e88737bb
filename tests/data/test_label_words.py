"""Labels of rows as words: values that are mapped, and labels in another Unicode normalisation."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from conftest import write_rows

from deepthink_cli.data.examples import read_demonstrations, read_pool, read_queries
from deepthink_cli.data.field_warnings import field_warnings
from deepthink_cli.data.source import RowSource
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

WORDS = (("0", "negative"), ("1", "positive"), ("true", "positive"))
TEMPLATE = Template("Text: {text}\nLabel: {label}")
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


def source(folder: Path, *labels: object, words: tuple[tuple[str, str], ...] = WORDS) -> RowSource:
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]
    return RowSource(str(write_rows(folder / "rows.jsonl", rows)), words=words)


def test_values_are_read_as_the_words_that_they_are_mapped_to(tmp_path: Path) -> None:
    rows = source(tmp_path, 0, "1", True, " 0 ", "positive")
    golds = ["negative", "positive", "positive", "negative", "positive"]
    assert [example.label for example in read_demonstrations(rows).examples] == golds
    assert read_pool(rows)[1] == ("negative", "positive")
    queries = list(read_queries(rows, TEMPLATE, ["positive", "negative"], labelled=True))
    assert [query.gold for query in queries] == golds
    assert queries[0].fields == {"text": "text 0", "label": 0}  # as the file has it


def test_a_pool_gives_its_rows_with_the_words(tmp_path: Path) -> None:
    _, _, pool = read_pool(source(tmp_path, 0, 1))
    assert [dict(query.fields or {}) for query in pool] == [
        {"text": "text 0", "label": "negative"},
        {"text": "text 1", "label": "positive"},
    ]


def test_each_label_of_a_row_with_several_is_mapped(tmp_path: Path) -> None:
    rows = source(tmp_path, [0, 1], [1])
    assert [example.label for example in read_demonstrations(rows).examples] == ["negative, positive", "positive"]
    rows = source(tmp_path, "0;1", "1")
    read = read_demonstrations(rows, label_separator=";")
    assert read.labels == ("negative", "positive")


def test_a_label_is_known_in_both_normalisations(tmp_path: Path) -> None:
    rows = source(tmp_path, DECOMPOSED, COMPOSED, "bar")
    (first, second, _) = read_queries(rows, TEMPLATE, [COMPOSED, "bar"], labelled=True)
    assert first.gold == second.gold == COMPOSED
    assert read_demonstrations(rows, labels=[DECOMPOSED, "bar"]).examples[1].label == DECOMPOSED
    several = read_demonstrations(source(tmp_path, [DECOMPOSED, "bar"], ["bar"]), labels=[COMPOSED, "bar"])
    assert several.examples[0].label == f"{COMPOSED}, bar"


def test_labels_that_differ_by_normalisation_are_shown_by_code_points(tmp_path: Path) -> None:
    read = read_demonstrations(source(tmp_path, COMPOSED, DECOMPOSED, "bar"))
    (message,) = field_warnings(read, named=True)
    assert r"'caf\xe9' and 'cafe\u0301' differ only by Unicode normalisation (NFC, NFD)" in message


def test_a_hint_shows_no_two_words_that_look_the_same(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        list(read_queries(source(tmp_path, "bar\u200b"), TEMPLATE, ["bar", COMPOSED], labelled=True))
    assert r"label 'bar\u200b' is not one of bar, café; did you mean 'bar'?" in str(caught.value)
    path = write_rows(tmp_path / "fields.jsonl", [{DECOMPOSED: "a", "label": "b"}])
    with pytest.raises(InputError) as caught:
        list(read_queries(str(path), Template(f"{{{COMPOSED}}} {{label}}"), ["b", "c"]))
    assert r"field 'caf\xe9' is missing" in str(caught.value)
    assert r"did you mean 'cafe\u0301'?" in str(caught.value)
