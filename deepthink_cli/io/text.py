"""Text that is safe to show: printable lines and one-line JSON."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 100_000  # characters of a line for people
# Control characters, line breaks and changes of writing direction; letters of any script are left as they are.
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, most: int = LONGEST) -> str:
    r"""Text as one line that is safe on a terminal: control characters become escapes such as \x1b or \u202e.

    Of a text of more than `most` characters the middle is omitted: the value named first and the remedy
    named last remain.
    """
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-(most // 2) :]}"
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def json_line(value: Any) -> str:
    """One line of JSON; text stays readable, and what JSON lacks (a Parquet date) becomes a string.

    Control characters are escaped as JSON allows, so that programs read the same data.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
