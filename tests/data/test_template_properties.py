"""A template writes demonstrations and queries, and refuses to be one that cannot be filled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepthink_cli.cli.values import unescaped
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError


def refusal(pattern: str) -> str:
    with pytest.raises(InputError) as caught:
        Template(pattern)
    return str(caught.value)


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


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}[]!:."), min_size=1, max_size=8).filter(
    lambda name: not name.isdigit()
)
NAMES = st.lists(NAME, min_size=2, max_size=5, unique=True)
PIECES = st.sampled_from(
    ["{", "}", "{{", "}}", "{a}", "{b}", "{ c}", "{a!r}", "{b:>3}", "{0}", "{a.b}", "x", " ", "\n"]
)
PATTERN = TEXT | st.lists(PIECES, max_size=8).map("".join)


def doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@given(NAMES, st.data(), TEXT)
def test_a_prompt_is_its_literals_and_its_values_in_order(names: list[str], data: st.DataObject, label: str) -> None:
    literals = [data.draw(TEXT) for _ in names]
    values = {name: data.draw(TEXT) for name in names}
    separator = data.draw(TEXT)
    pattern = "".join(f"{doubled(literal)}{{{name}}}" for literal, name in zip(literals, names, strict=True))
    template = Template(pattern, separator)
    assert (template.text_fields, template.label_field) == (tuple(names[:-1]), names[-1])
    filled = [literal + values[name].strip() for literal, name in zip(literals, names[:-1], strict=False)]
    query = "".join(filled) + literals[-1]
    assert template.query(values) == query  # whatever stands under the label's name
    assert template.demonstrations([(values, label)] * 2) == (query + label + separator) * 2


@given(TEXT, TEXT, TEXT)
def test_a_plain_text_fills_the_only_field(before: str, text: str, label: str) -> None:
    template = Template(doubled(before) + "{text}{label}")
    assert template.query(text) == template.query({"text": text}) == before + text.strip()


@given(PATTERN)
def test_what_is_taken_for_a_template_python_fills_in_the_same_way(pattern: str) -> None:
    try:
        template = Template(pattern)
    except InputError:
        return
    values = {name: f"<{place}>" for place, name in enumerate(template.fields)}
    label = values[template.label_field]
    assert len(set(template.fields)) == len(template.fields) >= 2
    assert template.query(values) + label == pattern.format(**values)
    assert pattern.endswith("{" + template.label_field + "}")


@given(NAMES)
def test_the_fields_of_a_row_make_a_line_each(names: list[str]) -> None:
    *texts, label = names
    template = Template.of_fields(names, label)
    assert template.fields == (*texts, label)
    query = template.query(dict.fromkeys(texts, "text"))
    titles = [name.replace("_", " ").strip() for name in names]
    lines = [f"{title[:1].upper()}{title[1:]}: " for title in titles]
    assert query == "".join(f"{line}text\n" for line in lines[:-1]) + lines[-1]


@given(TEXT)
def test_escapes_round_trip(text: str) -> None:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r")
    assert not set(escaped) & set("\n\t\r")
    assert unescaped(escaped) == text
