"""Warnings of probable mistakes in demonstrations, such as a wrong label field."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from statistics import fmean

from deepthink_cli.data.examples import DemonstrationSet, Text
from deepthink_cli.data.template import Template
from deepthink_cli.errors import option
from deepthink_cli.io.text import printable, told_apart

FEWEST = 3  # demonstrations for a judgement of a field
_ID = re.compile(
    r"[A-Za-z]{0,8}[-_#]?\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,64}", re.IGNORECASE | re.ASCII
)
_SHOWN = 40  # characters of a value in a message


def field_warnings(demonstrations: DemonstrationSet, named: bool = False, has_header: bool = False) -> list[str]:
    """One message for each sign of a mistake in labelled rows: demonstrations, or a pool of demonstrations.

    `named`: the user listed the labels. `has_header`: the first row of a table has the names of fields. The signs: a
    text field or the label looks like an id; every label occurs once; labels are longer than texts; the header looks
    like a row; labels differ in little.
    """
    template, examples = demonstrations.template, demonstrations.examples
    columns = _text_columns(template, [example.text for example in examples])
    columns[template.label_field] = [example.label for example in examples]
    for name, values in columns.items() if has_header else ():
        repeated = name == template.label_field or len(set(values)) < len(values)
        if repeated and name in values:
            return [
                f"the field {name!r} is named like one of its values, so that the first row may be data; if the file "
                f"has no header, give {option('no_header')}: its columns are then column1, column2, ..."
            ]
    messages = text_warnings(template, [example.text for example in examples])
    judged = len(examples) >= FEWEST and bool(demonstrations.labels) and template.label_separator is None
    if judged and not named and (reasons := _label_reasons(template, columns)):
        advice = _label_advice(template, columns)
        messages.append(f"the field {template.label_field!r} may not be the label: {' and '.join(reasons)}; {advice}")
    return messages + alike(demonstrations.labels)


def text_warnings(template: Template, texts: Sequence[Text], command: str = "") -> list[str]:
    """One message for each text field whose values look like ids; `command` is the command that takes a template."""
    if len(texts) < FEWEST:
        return []
    columns = _text_columns(template, texts)
    ids = [name for name in template.text_fields if looks_like_id(columns[name])]
    remaining = [name for name in template.text_fields if name not in ids]
    flag = f"{f'deepthink {command} ' if command else ''}{option('template')}"
    way = f"name the text with {flag} '... {{text}} ... {{{template.label_field}}}'"
    if ids and remaining:
        shorter = Template.of_fields([*remaining, template.label_field], template.label_field).pattern
        quoted = shorter.replace("\n", "\\n")
        way = f"to omit it, {flag} '{quoted}'"
    return [f"the field {name!r} looks like an id ({_few(columns[name])}) and is read as text: {way}" for name in ids]


def looks_like_id(values: Sequence[str]) -> bool:
    """Whether all values differ, and all are whole numbers, UUIDs, digests, or words with a number as in `row-17`."""
    return len(set(values)) == len(values) and all(_ID.fullmatch(value) for value in values)


def _text_columns(template: Template, texts: Sequence[Text]) -> dict[str, list[str]]:
    values = [template.values(text) for text in texts]
    return {name: [each[name] for each in values] for name in template.text_fields}


def _label_reasons(template: Template, columns: dict[str, list[str]]) -> list[str]:
    labels, reasons = columns[template.label_field], []
    if looks_like_id(labels):
        reasons.append(f"it looks like an id ({_few(labels)})")
    elif len(set(labels)) == len(labels):
        reasons.append(f"every label occurs once ({_few(list(map(repr, labels)))})")
    texts = [columns[name] for name in template.text_fields]
    of_text, of_label = sum(fmean(map(len, values)) for values in texts), fmean(map(len, labels))
    if of_label > of_text:
        reasons.append(f"labels are longer than texts ({of_label:.0f} and {of_text:.0f} characters on average)")
    return reasons


def _label_advice(template: Template, columns: dict[str, list[str]]) -> str:
    """Advice that proposes, as the label field, the field whose values repeat most, if there is one."""
    repeated = {
        name: len(set(columns[name]))
        for name in template.text_fields
        if 1 < len(set(columns[name])) < len(columns[name])
    }
    better = min(repeated, key=lambda name: repeated[name]) if repeated else "NAME"
    return (
        f"name the label field with {option('label_field')} {better}; if it is right, list the labels "
        f"with {option('labels')}"
    )


def alike(labels: Sequence[str]) -> list[str]:
    """One message for labels that differ only by case, blanks, or the Unicode composition of their characters."""
    same: dict[str, list[str]] = {}
    for label in labels:
        same.setdefault(" ".join(unicodedata.normalize("NFC", label).casefold().split()), []).append(label)
    messages = []
    for each in (each for each in same.values() if len(each) > 1):
        one_form = len({unicodedata.normalize("NFC", label) for label in each}) == 1
        how = "Unicode normalisation (NFC, NFD)" if one_form else "case or blanks"
        messages.append(
            f"the labels {' and '.join(told_apart(*each))} differ only by {how}, and are scored as different labels; "
            "write them alike in the rows"
        )
    return messages


def _few(values: Sequence[str]) -> str:
    shown = [printable(value, _SHOWN) for value in values[:3]]
    return ", ".join([*shown, *(["..."] if len(values) > len(shown) else [])])
