"""Labelling a DataFrame."""

from __future__ import annotations

import pandas as pd
import pytest
from conftest import readings_of

from deepthink_cli import DemonstrationSet, Engine, Example, Memory, Method, load_model, predict
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.sklearn.frames import label_frame

EXAMPLES = [Example("a warm and funny film", "positive"), Example("a dull and lifeless mess", "negative")]
TEXTS = ["far too long", "tender, wise and moving", "a warm film"]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_model(device="cpu")


@pytest.fixture(scope="module")
def memory(engine: Engine) -> Memory:
    given = DemonstrationSet.of(EXAMPLES, "Review: {review}\nSentiment: {sentiment}")
    *_, last = readings_of(engine, given, Method(iterations=2))
    return last


def test_a_frame_gets_the_labels_and_probabilities_of_predict(engine: Engine, memory: Memory) -> None:
    frame = pd.DataFrame({"review": TEXTS, "stars": [1, 5, 4]}, index=["c", "a", "b"])
    labelled = label_frame(engine, memory, frame, chunk=2)
    expected = list(predict(engine, memory, TEXTS, chunk=2))
    assert labelled["label"].tolist() == [prediction.label for prediction in expected]
    assert labelled["probability"].tolist() == [prediction.probability for prediction in expected]
    assert labelled.index.tolist() == ["c", "a", "b"]
    assert labelled["stars"].tolist() == [1, 5, 4]
    assert list(frame.columns) == ["review", "stars"]


def test_a_template_with_several_fields_reads_several_columns(engine: Engine) -> None:
    examples = [Example({"premise": text, "year": "1999"}, label) for text, label in (("rain", "wet"), ("sun", "dry"))]
    given = DemonstrationSet.of(examples, "{premise} in {year}: {label}")
    memory = next(readings_of(engine, given))
    labelled = label_frame(engine, memory, pd.DataFrame({"year": [2001], "premise": ["a storm"]}))
    (expected,) = predict(engine, memory, [{"premise": "a storm", "year": "2001"}])
    assert labelled["label"].tolist() == [expected.label]


def test_an_empty_frame_gets_empty_columns(engine: Engine, memory: Memory) -> None:
    assert list(label_frame(engine, memory, pd.DataFrame({"review": []})).columns) == ["review", "label", "probability"]


def test_every_empty_value_is_named_by_its_row(engine: Engine, memory: Memory) -> None:
    frame = pd.DataFrame({"review": ["fine", None, "  "]}, index=[10, 11, 12])
    with pytest.raises(InputError) as error:
        label_frame(engine, memory, frame)
    assert [message.split(":")[0] for message in error.value.messages] == ["row 11", "row 12"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["text"], "0 columns are called 'review'"),
        (["review", "review"], "2 columns are called 'review'"),
        (["review", "label"], "column 'label' would be overwritten; rename it"),
    ],
)
def test_a_frame_whose_columns_do_not_fit_is_refused(
    engine: Engine, memory: Memory, columns: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        label_frame(engine, memory, pd.DataFrame([["a"] * len(columns)], columns=columns))


def test_a_memory_without_labels_is_refused(engine: Engine) -> None:
    given = DemonstrationSet(tuple(EXAMPLES), DemonstrationSet.of(EXAMPLES, "{review}: {label}").template, ())
    memory = next(readings_of(engine, given))
    with pytest.raises(InputError, match="has no labels of its own"):
        label_frame(engine, memory, pd.DataFrame({"review": ["a"]}))
