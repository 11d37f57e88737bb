"""Find the answer in a generated text, in the form in which it is compared with the true answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deepthink_cli.tasks.patterns import all_matches

if TYPE_CHECKING:  # its judges are named in task files
    from deepthink_cli.tasks.format import Free

_PUNCTUATION = r"[.,;:!?\"'`*$]+(?=\s|$)|(?<!\S)[\"'`*$]+"


def found(pattern: str, text: str) -> str | None:
    """The first group of a pattern's last match in a text, without spaces around it; None without a match."""
    matches = all_matches(pattern, text)
    return (matches[-1][1] or "").strip() if matches else None


def true_answer(free: Free, gold: str) -> str:
    """The part of the answer column's text that is compared."""
    answer = gold if free.gold is None else found(free.gold, gold)
    return _compared(free, answer or "")


def given_answer(free: Free, text: str) -> str:
    """The part of a generated text that is compared; empty if it has no answer."""
    answer = text.strip() if free.extract is None else found(free.extract, text)
    return _compared(free, answer or "")


def _compared(free: Free, answer: str) -> str:
    if "case" in free.ignore:
        answer = answer.lower()
    if "commas" in free.ignore:  # as in 1,000
        answer = answer.replace(",", "")
    if "punctuation" in free.ignore:
        answer = re.sub(_PUNCTUATION, "", answer)
    return "".join(answer.split()) if "space" in free.ignore else " ".join(answer.split())
