"""Samples in columns: what is kept, and that it is unpacked to the same."""

from __future__ import annotations

import base64
import gzip
import json
import math
from typing import Any

import numpy as np
import pytest
from helpers.web_pages import samples_of

from deepthink_cli.plugins.pages.samples import LONGEST_TEXT, MAX_CANDIDATES, REST, Group, Samples

NUMBERS = {"u16": "<u2", "u32": "<u4", "i32": "<i4"}


def unpacked(samples: Samples) -> dict[str, Any]:
    """Every column as the page's script reads it."""
    columns: dict[str, Any] = {}
    for column in samples.columns():
        content = gzip.decompress(base64.b64decode(column.packed()))
        columns[column.name] = (
            json.loads(content) if column.type == "json" else np.frombuffer(content, NUMBERS[column.type]).tolist()
        )
    return columns


def one_row(candidates: list[str], gold: str, labels: list[str], scores: list[list[float]]) -> dict[str, Any]:
    samples = Samples()
    samples.start(Group("clinc", "0", "", "test", tuple(range(1, len(labels) + 1))))
    samples.add("text", "file:1", gold, candidates, labels, scores)
    return unpacked(samples)


def test_columns_hold_every_row_with_labels_and_scores_in_the_order_of_the_iterations() -> None:
    columns = unpacked(samples_of())
    assert columns["about"]["labels"] == ["positive", "negative"]
    assert columns["about"]["candidates"] == [[1, 0]]
    assert columns["group"] == [0] * 4 + [1] * 4
    assert columns["predicted"][:6] == [0, 1, 1, 0, 0, 1]
    assert columns["scores"][:6] == [-1000, -2000, -1000, -500, -1000, 1000]


def test_a_text_that_several_jobs_share_is_kept_once() -> None:
    columns = unpacked(samples_of())
    assert len(columns["texts"]) == 4
    assert columns["text"] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len(columns["places"]) == 8


def test_of_many_candidates_the_true_the_predicted_and_the_best_are_kept() -> None:
    names = [f"label{number}" for number in range(40)]
    first, last = [-float(number) for number in range(40)], [-3.0 - number / 100 for number in range(40)]
    columns = one_row(names, "label39", ["label30", "label0"], [first, last])
    labels = [columns["about"]["labels"][number] for number in columns["about"]["candidates"][0]]
    assert len(labels) == MAX_CANDIDATES + 1
    assert {"label39", "label30", "label0"} < set(labels)
    assert labels[-1] == REST
    assert [labels[number] for number in columns["predicted"]] == ["label30", "label0"]


def test_the_rest_of_many_candidates_has_their_summed_probability() -> None:
    names = [f"label{number}" for number in range(40)]
    columns = one_row(names, "label0", ["label0"], [[-2.0] * 40])
    assert columns["scores"][-1] == round(1000 * (-2 + math.log(40 - MAX_CANDIDATES)))


def test_the_middle_of_a_long_text_is_omitted() -> None:
    samples = Samples()
    samples.start(Group("sst2", "0", "", "test", (1,)))
    samples.add("a" * 5000 + "b" * 5000, "file:1", "x", ["x", "y"], ["x"], [[0.0, -1.0]])
    (text,) = unpacked(samples)["texts"]
    assert len(text) == LONGEST_TEXT + len(" [...] ")
    assert text.startswith("aaa")
    assert text.endswith("bbb")


def test_a_text_that_is_not_valid_unicode_is_kept_as_far_as_it_is() -> None:
    samples = Samples()
    samples.start(Group("sst2", "0", "", "test", (1,)))
    samples.add("half \ud800 a pair", "file:1", "x", ["x", "y"], ["x"], [[0.0, -1.0]])
    assert unpacked(samples)["texts"] == ["half ? a pair"]


@pytest.mark.parametrize("name", ["texts", "scores"])
def test_the_same_samples_are_packed_to_the_same_text(name: str) -> None:
    first, second = ({each.name: each.packed() for each in samples_of().columns()} for _ in range(2))
    assert first[name] == second[name]
