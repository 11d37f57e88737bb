"""Text that is safe to show: printable lines and one-line JSON."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 100_000  # maximum characters of a line
# Control characters, line breaks and changes of writing direction; letters of any script are unchanged.
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, most: int = LONGEST) -> str:
    r"""Text as one line that is safe on a terminal, with control characters escaped as \x1b or \u202e.

    The middle of a text longer than `most` characters is omitted, because messages begin with the value and end
    with the fix.
    """
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-(most // 2) :]}"
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def json_line(value: Any) -> str:
    """One line of JSON in readable Unicode; types that JSON lacks (a Parquet date) become strings.

    Control characters are escaped as JSON allows, so that programs read the same data.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def size(count: int) -> str:
    """A human-readable number of bytes."""
    if count < 1024:
        return f"{count} B"
    power = min(4, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"
