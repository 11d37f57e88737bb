"""Which rows are one input."""

from __future__ import annotations

from deepthink_cli.data.examples import Example, Query
from deepthink_cli.data.same_input import input_groups, input_keys, is_among
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


def test_rows_are_numbered_by_their_inputs_in_the_order_of_the_first_of_each() -> None:
    rows = [Query("b", WORDS, "no"), Query("a", WORDS, "yes"), Example(" b ", "yes"), Query("a", WORDS, "no")]
    assert input_groups(rows, TEMPLATE, WORDS) == [0, 1, 0, 1]


def test_rows_that_are_each_the_same_as_a_third_are_one_group() -> None:
    left, right = own("Which is larger?", "nine", "two"), own("Which is larger?", "two", "nine")
    by_answer = own("Which is larger?", "two", "one")  # the same as `right` by its answer, as none of `left`
    assert not same(left, by_answer, labels=())
    assert input_groups([left, by_answer, own("Which?", "a", "b"), right], TEMPLATE, ()) == [0, 0, 1, 0]


def test_a_row_is_among_others_if_it_is_the_same_input_as_one_of_them() -> None:
    among = is_among([Example("a", "yes"), Example("b", "no")], TEMPLATE, WORDS)
    assert [among(Query(text, WORDS)) for text in ("a", " b", "c")] == [True, True, False]
