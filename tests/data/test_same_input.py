"""Which rows are one input."""

from __future__ import annotations

from deepthink_cli.data.examples import Example, Query
from deepthink_cli.data.same_input import input_keys
from deepthink_cli.data.template import Template

TEMPLATE = Template("Text: {text}\nLabel: {label}")
PAIR = Template("{first} {second}\n{label}")
WORDS = ("no", "yes")


def same(
    one: Query | Example, two: Query | Example, labels: tuple[str, ...] = WORDS, prompt: Template = TEMPLATE
) -> bool:
    """Whether two rows are the same input, in either order."""
    keys = [input_keys(row, prompt, labels) for row in (one, two)]
    return not keys[0].isdisjoint(keys[1])


def own(text: str, right: str | None, *wrong: str) -> Query:
    """A row with candidates of its own."""
    return Query(text, (*([] if right is None else [right]), *wrong), right)


def test_a_text_is_one_input_whatever_its_label_its_candidates_and_the_blanks_around_it() -> None:
    assert same(Query("a film", WORDS, "yes"), Query(" a film\n", WORDS, "no"))
    assert same(Query("a film", WORDS, "yes"), Query("a film", ("no", "yes", "perhaps")))
    assert same(Query("a film", WORDS, "yes"), Example("a film", "no"))
    assert same(Query({"text": "a film"}, WORDS), Example("a film", "no"))


def test_other_letters_and_blanks_within_make_another_input() -> None:
    assert not same(Example("a film", "yes"), Query("A film", WORDS))
    assert not same(Example("a film", "yes"), Query("a  film", WORDS))


def test_several_fields_are_compared_by_name() -> None:
    row = Query({"first": "a", "second": "b"}, WORDS)
    assert same(row, Query({"second": "b", "first": "a", "id": "7"}, WORDS), prompt=PAIR)
    assert not same(row, Query({"first": "b", "second": "a"}, WORDS), prompt=PAIR)


def test_of_rows_with_candidates_of_their_own_those_or_the_answers_must_be_the_same() -> None:
    row = own("Which is larger?", "nine", "two")
    assert same(row, own("Which is larger?", None, "two", "nine"), labels=())
    assert same(row, own("Which is larger?", "nine", "six"), labels=())
    assert same(row, Example("Which is larger?", "nine"), labels=())
    assert not same(row, own("Which is larger?", "six", "five"), labels=())
    assert not same(row, Example("Which is larger?", "two"), labels=())


def test_a_question_with_a_generated_answer_is_one_input_however_the_answer_is_written() -> None:
    assert same(Query("What is 2 + 2?", (), "4"), Example("What is 2 + 2?", "2 + 2 = 4.\n#### 4"), labels=())
