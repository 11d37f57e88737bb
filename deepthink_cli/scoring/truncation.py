"""Texts that are too long for the model: their end, or their start, is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Query, Skipped, Text
from deepthink_cli.errors import InputError
from deepthink_cli.events import Note, Tell
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.options import Keep, ScoreName
from deepthink_cli.provenance import TokenizedDemonstrations

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def truncated(
    rows: Iterable[Query | Skipped],
    tokenizer: PreTrainedTokenizerBase,
    limits: Limits,
    demonstrations: TokenizedDemonstrations,
    keep: Keep,
    score: ScoreName,
    tell: Tell,
) -> Iterator[Query | Skipped]:
    """The rows; of a text that is too long after the demonstrations, as many characters as fit, from one of its ends.

    Of several fields, the longest one is shortened. A row that is too long even so stays as it is. At the end, `tell`
    is called with the number of rows that were shortened.
    """
    length, limits = len(demonstrations.token_ids), limits.after(demonstrations)
    most, tokenize = limits.max_tokens(length), query_tokenizer(tokenizer, demonstrations, score)
    count = 0

    def fits(query: Query) -> bool:
        return most is None or length + tokenize([query])[0].longest <= most

    for row in rows:
        shorter = row
        if isinstance(row, Query):
            try:
                shorter = row if fits(row) else _shortened(row, keep, fits)
            except InputError:  # scoring it says why
                shorter = row
        count += shorter is not row
        yield shorter
    if count:
        tell(Note(f"truncated {count:,} rows: of a text that is too long for the model, the {keep} was read"))


def _shortened(query: Query, keep: Keep, fits: Callable[[Query], bool]) -> Query:
    fields = query.text if isinstance(query.text, Mapping) else {"": query.text}
    name = max(fields, key=lambda each: len(fields[each]))
    whole = fields[name]

    def kept(characters: int) -> Query:
        part = whole[:characters] if keep == "start" else whole[len(whole) - characters :]
        text: Text = part if isinstance(query.text, str) else {**query.text, name: part}
        return replace(query, text=text, truncated=len(whole) - characters)

    # A text that is a little longer can have a token less, so the last steps are tried one by one.
    characters = 1
    while characters < len(whole) and fits(kept(characters)):
        characters = min(2 * characters, len(whole))
    characters = bisect_right(range(1, characters), False, key=lambda number: not fits(kept(number)))
    while characters and not fits(kept(characters)):
        characters -= 1
    return kept(characters) if characters else query
