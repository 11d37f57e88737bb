"""The regular expressions of task files, applied to texts within a limit of time."""

from __future__ import annotations

import re
from typing import Any

from deepthink_cli.errors import InputError

SECONDS = 10.0  # the limit for one text; a pattern of nested repetitions may need years
_Match = Any  # re.Match, of the package `regex`


def checked_pattern(text: str) -> str:
    """The pattern; raises ValueError unless it is a regular expression of Python."""
    import regex

    try:
        re.compile(text)
        regex.compile(text)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


def all_matches(pattern: str, text: str, whole: bool = False) -> list[_Match]:
    """The matches of a pattern in a text, or with the `whole` text; raises InputError if they take too long."""
    import regex

    try:
        if whole:
            return list(filter(None, [regex.fullmatch(pattern, text, timeout=SECONDS)]))
        return list(regex.finditer(pattern, text, timeout=SECONDS))
    except TimeoutError as error:
        raise InputError(
            f"pattern {pattern!r}: takes more than {SECONDS:g} s on a text of {len(text):,} characters; write it "
            "without repetitions of repetitions"
        ) from error


def found(pattern: str, text: str) -> str | None:
    """The first group of a pattern's last match in a text, without spaces around it; None without a match."""
    matches = all_matches(pattern, text)
    return (matches[-1][1] or "").strip() if matches else None
