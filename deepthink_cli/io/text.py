"""Text for people: sizes, lengths, printable characters, and text in Markdown."""

from __future__ import annotations

import difflib
import glob
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

LONGEST = 100_000  # maximum characters of a line
# Control characters, line breaks and changes of writing direction; letters of any script are unchanged.
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|&~$])")


def visible(text: str, kept: str = "") -> str:
    r"""Text without effect on a terminal: control characters not in `kept` are escaped, as \x1b or \u202e."""
    return _STEERING.sub(
        lambda found: found[0] if found[0] in kept else found[0].encode("unicode_escape").decode(), text
    )


def printable(text: str, most: int = LONGEST) -> str:
    """Text as one line that is safe on a terminal (`visible`).

    The middle of a text longer than `most` characters is omitted, because messages begin with the value and end
    with the fix.
    """
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-(most // 2) :]}"
    return visible(text)


def markdown_text(text: str) -> str:
    """Text within a line of Markdown or a cell of its tables, with control and special characters escaped."""
    return _MARKDOWN.sub(r"\\\1", printable(text))


def json_line(value: Any) -> str:
    """One line of JSON in readable Unicode; types that JSON lacks (a Parquet date) become strings.

    Control characters are escaped as JSON allows, so that programs read the same data.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def jsonable(value: Any) -> Any:
    """The value, or None for NaN, which pandas writes to Parquet for a missing value."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def size(count: int) -> str:
    """A human-readable number of bytes."""
    if count < 1024:
        return f"{count} B"
    power = min(4, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_sha256(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value."""
    return sha256(canonical_json(value).encode(errors="surrogatepass")).hexdigest()  # paths may hold lone surrogates


def told_apart(*words: str) -> list[str]:
    """Different words in quotation marks, by code points if some of them look the same, as in NFC and NFD."""
    seen = {"".join(each for each in unicodedata.normalize("NFKC", word) if each.isprintable()) for word in words}
    return list(map(repr if len(seen) == len(words) else ascii, words))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, whatever the case of their letters; None if none is like it."""
    by_folded = {each.casefold(): each for each in reversed(list(known))}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def file_meant(path: str | Path, otherwise: str) -> str:
    """The advice for a missing file: the file beside it whose name is most like it, or another advice if none is."""
    folder, name = os.path.split(path)
    near = nearest(name, map(os.path.basename, glob.glob(os.path.join(glob.escape(folder), "*"))))
    return otherwise if near is None else f"did you mean {os.path.join(folder, near)}?"


def named(label: str) -> str:
    """A label for a text with numbers: quoted if it begins with a digit, as in `'0'`."""
    return repr(label) if label[:1].isdecimal() else label
