"""Parquet: what its metadata say of the columns."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from conftest import write_rows
from datasets import ClassLabel, Dataset, Features, List, Value

from deepthink_cli.data.examples import read_demonstrations, read_pool, read_queries
from deepthink_cli.data.field_warnings import field_warnings
from deepthink_cli.data.rows import read_rows
from deepthink_cli.data.source import RowSource
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.events import Event, Note

TEXTS = ["a fine film", "dull", "lovely", "too long"]
CLASSES = ["negative", "positive"]


def told_by(source: RowSource) -> tuple[RowSource, list[Event]]:
    told: list[Event] = []
    return RowSource(source.path, source.format, renamed=source.renamed, words=source.words, tell=told.append), told


def classified(labels: list[Any], feature: Any = None) -> Dataset:
    features = Features({"text": Value("string"), "label": feature or ClassLabel(names=CLASSES)})
    return Dataset.from_dict({"text": TEXTS, "label": labels}, features=features)


@pytest.fixture
def parquet(tmp_path: Path) -> RowSource:
    classified([1, 0, 1, 0]).to_parquet(tmp_path / "classes.parquet")
    return RowSource(str(tmp_path / "classes.parquet"))


def test_the_index_of_a_table_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": TEXTS[:2], "label": ["good", "bad"]})
    pd.concat([frame, frame]).to_parquet(tmp_path / "rows.parquet")
    source, told = told_by(RowSource(str(tmp_path / "rows.parquet")))
    assert read_demonstrations(source).labels == ("good", "bad")
    assert [row.fields for row in read_rows(source)][:2] == frame.to_dict("records")
    assert all(isinstance(event, Note) and "left out '__index_level_0__'" in event.text for event in told)


def test_an_index_that_is_mapped_is_read(tmp_path: Path) -> None:
    pd.DataFrame({"label": ["good", "bad"]}, index=pd.Index(["a", "b"], name="text")).to_parquet(tmp_path / "i.parquet")
    path = str(tmp_path / "i.parquet")
    assert [list(row.fields) for row in read_rows(path)] == [["label"], ["label"]]
    source = RowSource(path, renamed=(("text", "review"),))
    assert [source.converted(row).fields for row in read_rows(source)] == [
        {"label": "good", "review": "a"},
        {"label": "bad", "review": "b"},
    ]


def test_the_names_of_classes_are_label_words(parquet: RowSource) -> None:
    source, told = told_by(parquet)
    demonstrations = read_demonstrations(source)
    assert [example.label for example in demonstrations.examples] == ["positive", "negative"] * 2
    (note,) = told
    assert isinstance(note, Note)
    assert "0 as 'negative', 1 as 'positive'" in note.text
    template, labels, pool = read_pool(parquet)
    assert labels == ("negative", "positive")
    assert pool[0].fields == {"text": TEXTS[0], "label": "positive"}
    queries = read_queries(parquet, template, labels, labelled=True)
    assert [query.gold for query in queries] == ["positive", "negative"] * 2


def test_a_memory_of_numbers_reads_the_numbers(parquet: RowSource) -> None:
    template = read_demonstrations(parquet).template
    assert [query.gold for query in read_queries(parquet, template, ["0", "1"], labelled=True)] == ["1", "0"] * 2


def test_lists_of_classes_and_renamed_columns_have_names(tmp_path: Path) -> None:
    classified([[1], [0, 1], [0], [1]], List(ClassLabel(names=CLASSES))).to_parquet(tmp_path / "lists.parquet")
    source = RowSource(str(tmp_path / "lists.parquet"), renamed=(("label", "tone"),))
    assert [example.label for example in read_demonstrations(source).examples][1] == "negative, positive"


def test_a_class_without_a_name_is_refused_where_labels_are_read(tmp_path: Path) -> None:
    classified([1, 0, 1, -1]).to_parquet(tmp_path / "unlabelled.parquet")
    with pytest.raises(InputError, match=r"parquet:4: 'label' is -1, and the file names the classes 0 to 1"):
        read_demonstrations(str(tmp_path / "unlabelled.parquet"))


def test_categories_are_label_words(tmp_path: Path) -> None:
    labels = pyarrow.array(["good", "bad", "good", "bad"]).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "label": labels}), tmp_path / "rows.parquet")
    assert read_demonstrations(str(tmp_path / "rows.parquet")).labels == ("good", "bad")


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
