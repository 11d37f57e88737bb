"""What holds of every template, text and label."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from deepthink_cli.cli.values import unescaped
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

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


@given(TEXT)
def test_a_text_without_a_backslash_has_no_escapes(text: str) -> None:
    assume("\\" not in text)
    assert unescaped(text) == text
