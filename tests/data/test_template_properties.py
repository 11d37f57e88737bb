"""A template writes demonstrations and queries, and refuses to be one that cannot be filled."""

from __future__ import annotations

import pytest

from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

REVIEW = "Review: {text}\nSentiment: {label}"


def refusal(pattern: str) -> str:
    with pytest.raises(InputError) as caught:
        Template(pattern)
    return str(caught.value)


def test_a_query_stops_where_the_label_belongs() -> None:
    assert Template(REVIEW).query("a fine film") == "Review: a fine film\nSentiment: "


def test_demonstrations_end_with_the_separator_each() -> None:
    written = Template(REVIEW, separator="\n##\n").demonstrations([("good", "yes"), ("bad", "no")])
    assert written == "Review: good\nSentiment: yes\n##\nReview: bad\nSentiment: no\n##\n"


@pytest.mark.parametrize(
    ("name", "title"),
    [("review_text", "Review text"), ("text", "Text"), ("URL", "URL"), ("_a__b", "A  b"), ("été", "Été")],
)
def test_field_names_become_titles(name: str, title: str) -> None:
    assert Template.of_fields([name, "y"], "y").pattern == f"{title}: {{{name}}}\nY: {{y}}"


def test_the_label_comes_last_wherever_its_field_stands() -> None:
    template = Template.of_fields(["label", "title", "body"], "label", separator="\n")
    assert template.pattern == "Title: {title}\nBody: {body}\nLabel: {label}"
    assert template.separator == "\n"


@pytest.mark.parametrize("pattern", ["", "plain", "Review: {text}", "{{text}} {label}"])
def test_a_template_needs_a_text_and_a_label(pattern: str) -> None:
    hint = r"needs a text field and a label field, as in 'Review: {text}\nSentiment: {label}'"
    assert refusal(pattern) == f"template {pattern!r}: {hint}"


def test_a_field_may_not_stand_twice() -> None:
    assert refusal("{a} {b} {a}") == "template '{a} {b} {a}': a field is duplicated; use each once"


@pytest.mark.parametrize("end", [".", "\n", " ", "{{"])
def test_nothing_may_follow_the_label(end: str) -> None:
    message = refusal("{text} {label}" + end)
    assert message.endswith(": must end with its label field, nothing may follow it")
    assert repr("{text} {label}" + end) in message


@pytest.mark.parametrize("pattern", ["{text} {label", "{text}} {label}", "{text} } {label}", "{a{b} {c}"])
def test_a_single_brace_is_explained(pattern: str) -> None:
    message = refusal(pattern)
    assert message.startswith(f"template {pattern!r}: ")
    assert message.endswith("; write a literal brace twice")


@pytest.mark.parametrize("field", ["{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{a!s:x}"])
def test_python_format_syntax_is_not_a_field_name(field: str) -> None:
    message = refusal(f"{field} {{label}}")
    assert message.endswith(f": {field} is not a field name; use one without . : ! [ ] or braces")


def test_a_string_cannot_fill_two_fields() -> None:
    with pytest.raises(InputError, match=r"^template needs the fields a, b; a single string was given$"):
        Template("{a} {b} {c}").query("x")


def test_a_missing_field_is_named_with_those_needed() -> None:
    with pytest.raises(InputError, match=r"^field 'b' is missing; the template needs a, b$"):
        Template("{a} {b} {c}").query({"a": "x", "c": "y"})
