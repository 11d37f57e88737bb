"""Warnings about demonstrations that are not what their author meant, as with a wrong label field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.data.template import Template
from deepthink_cli.errors import option
from deepthink_cli.io.text import printable

FEWEST = 3  # demonstrations from which on a field is judged
_ID = re.compile(
    r"[A-Za-z]{0,8}[-_#]?\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,64}", re.IGNORECASE | re.ASCII
)
_SHOWN = 40  # characters of a value in a message


def field_warnings(demonstrations: DemonstrationSet, named: bool = False) -> list[str]:
    """One message for each sign of a mistake; `named` says that the labels were listed, not taken from the rows.

    The signs: a field of the text looks like an id; the label looks like one, occurs once in every demonstration, or is
    longer than the text; labels differ only by case or blanks.
    """
    columns = _columns(demonstrations)
    judged = len(demonstrations.examples) >= FEWEST
    messages = [_text_id(demonstrations, columns, name) for name in _text_ids(demonstrations, columns) if judged]
    if demonstrations.labels and demonstrations.template.label_separator is None:
        reasons = _label_reasons(demonstrations, columns) if judged and not named else []
        if reasons:
            field = demonstrations.template.label_field
            advice = _label_advice(demonstrations.template, columns)
            messages.append(f"the field {field!r} may not be the label: {' and '.join(reasons)}; {advice}")
        messages += _same_but_for_case(demonstrations.labels)
    return messages


def looks_like_id(values: Sequence[str]) -> bool:
    """Whether all values differ, and all are whole numbers, UUIDs, digests, or words with a number as in `row-17`."""
    return len(set(values)) == len(values) and all(_ID.fullmatch(value) for value in values)


def _columns(demonstrations: DemonstrationSet) -> dict[str, list[str]]:
    """The values of every field of the template, the label's last."""
    template, examples = demonstrations.template, demonstrations.examples
    texts = [template.values(example.text) for example in examples]
    columns = {name: [text[name] for text in texts] for name in template.text_fields}
    return {**columns, template.label_field: [example.label for example in examples]}


def _text_ids(demonstrations: DemonstrationSet, columns: dict[str, list[str]]) -> list[str]:
    return [name for name in demonstrations.template.text_fields if looks_like_id(columns[name])]


def _text_id(demonstrations: DemonstrationSet, columns: dict[str, list[str]], name: str) -> str:
    template, ids = demonstrations.template, _text_ids(demonstrations, columns)
    remaining = [field for field in template.text_fields if field not in ids]
    what = f"the field {name!r} looks like an id ({_few(columns[name])}) and is read as text"
    if not remaining:
        return f"{what}: name the text with {option('template')} '... {{text}} ... {{{template.label_field}}}'"
    shorter = Template.of_fields([*remaining, template.label_field], template.label_field).pattern
    return f"{what}: to omit it, {option('template')} {_quoted(shorter)}"


def _label_reasons(demonstrations: DemonstrationSet, columns: dict[str, list[str]]) -> list[str]:
    labels, reasons = columns[demonstrations.template.label_field], []
    if looks_like_id(labels):
        reasons.append(f"it looks like an id ({_few(labels)})")
    elif len(set(labels)) == len(labels):
        reasons.append(f"every label occurs once ({_few(list(map(repr, labels)))})")
    texts = [columns[name] for name in demonstrations.template.text_fields]
    of_text, of_label = sum(fmean(map(len, values)) for values in texts), fmean(map(len, labels))
    if of_label > of_text:
        reasons.append(f"labels are longer than texts ({of_label:.0f} and {of_text:.0f} characters on average)")
    return reasons


def _label_advice(template: Template, columns: dict[str, list[str]]) -> str:
    """The field whose values repeat most is proposed, if there is one."""
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


def _same_but_for_case(labels: Sequence[str]) -> list[str]:
    same: dict[str, list[str]] = {}
    for label in labels:
        same.setdefault(" ".join(label.casefold().split()), []).append(label)
    return [
        f"the labels {' and '.join(map(repr, alike))} differ only by case or blanks, and are scored as different "
        "labels; write them alike in the rows"
        for alike in same.values()
        if len(alike) > 1
    ]


def _few(values: Sequence[str]) -> str:
    shown = [printable(value, _SHOWN) for value in values[:3]]
    return ", ".join([*shown, *(["..."] if len(values) > len(shown) else [])])


def _quoted(pattern: str) -> str:
    return "'" + pattern.replace("\n", "\\n") + "'"
