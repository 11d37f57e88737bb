"""Warn of candidates that a sum of log-probabilities never chooses: their tokens begin with another's tokens.

Every further token lowers the sum, so that `bug report` never has a higher sum than `bug`. A mean per token may rise.
With an end, `bug report` no longer begins with the whole of `bug`. A calibration compares other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Query, Skipped, Text
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Tell, Warn
from deepthink_cli.model.tokens import TokenizedQuery, query_tokenizer
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.scoring import Scoring
from deepthink_cli.scoring.steps.score import SCORES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NAMED = 3  # labels in a warning
_DIVIDES, _MAY_DIVIDE = ";|", ",/"  # characters that no word has, and characters that some words have
_NEVER = "can never be predicted by a sum of log-probabilities: its tokens begin with those of"


class ExtendedLabels:
    """Warns of labels, and of rows' own candidates, whose tokens begin with another's tokens.

    They are tokenised as the queries of `prompt`. `where` begins the warnings, as in `task sst2: `; `options`, to be
    used in place of a sum, ends them. Raises InputError as `query_tokenizer`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt: Template | TokenizedDemonstrations,
        scoring: Scoring,
        tell: Tell,
        where: str = "",
        options: str | None = None,
    ) -> None:
        self._tokenize, self._tell, self._where = query_tokenizer(tokenizer, prompt, scoring), tell, where
        self._hint = "" if options is None else f", or use {options}"

    def check_labels(self, text: Text, labels: Sequence[str]) -> TokenizedQuery:
        """Warn of labels; returns the tokens of a query with this text, or raises as `tokenize_queries`."""
        query = Query(text, tuple(labels), where="the labels")
        (tokenized,) = self._tokenize([query])
        if pairs := _pairs(query, tokenized):
            self._warn_of_labels(pairs, _separator(pairs, labels))
        return tokenized

    def _warn_of_labels(self, pairs: Sequence[tuple[str, str]], separator: str | None) -> None:
        (longer, shorter), *more = pairs
        others = [f"{label!r} after {start!r}" for label, start in more[: _NAMED - 1]]
        others += [f"{len(pairs) - _NAMED} more"] if len(pairs) > _NAMED else []
        also = f" (also {', '.join(others)})" if others else ""
        text = f"label {longer!r} {_NEVER} {shorter!r}{also}"
        if separator is None:
            self._warn(text, "it")
            return
        way = f"deepthink think {option('label_separator')} '{separator}'"
        self._tell(Warn(f"{self._where}{text}; if rows have several labels, make the memory with {way}"))

    def check_rows(self, queries: Iterable[Query | Skipped], labels: Sequence[str]) -> None:
        """Warn once, with the number of rows, if rows have extended candidates other than `labels`."""
        texts = (text for query in queries if (text := self._of_row(query, labels)))
        if first := next(texts, None):
            others = sum(1 for _ in texts)
            rows = f"{others + 1:,} rows have" if others else "1 row has"
            self._warn(f"{first}; {rows} such candidates", "them")

    def watched(self, queries: Iterable[Query | Skipped], labels: Sequence[str]) -> Iterator[Query | Skipped]:
        """The same queries, as they come; warns of the first with extended candidates other than `labels`."""
        told = False
        for query in queries:
            if not told and (text := self._of_row(query, labels)):
                self._warn(text, "it")
                told = True
            yield query

    def _of_row(self, query: Query | Skipped, labels: Sequence[str]) -> str:
        """The warning of a row's candidates; empty if there is none."""
        if isinstance(query, Skipped) or set(query.candidates) == set(labels) or not _may_extend(query.candidates):
            return ""
        try:
            (tokenized,) = self._tokenize([query])
        except InputError:  # the row is refused or skipped where it is scored
            return ""
        place = f"{query.where}: " if query.where else ""
        for longer, shorter in _pairs(query, tokenized):
            return f"{place}candidate {longer!r} {_NEVER} {shorter!r}"
        return ""

    def _warn(self, text: str, renamed: str) -> None:
        self._tell(Warn(f"{self._where}{text}; rename {renamed}{self._hint}"))


def other_score(scoring: Scoring, typed: str = "{option} {name}") -> str | None:
    """The option of a score whose candidates have ends, so that none begins with another; None if one is in use."""
    for name in SCORES.own:
        if SCORES[name].separates and scoring.get("score") != name:
            return typed.format(option=option("score"), name=name)
    return None


def _pairs(query: Query, tokenized: TokenizedQuery) -> list[tuple[str, str]]:
    """Pairs of a candidate and another candidate with whose tokens it begins."""
    return [(query.candidates[one], query.candidates[other]) for one, other in tokenized.extended.items()]


def _separator(pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> str | None:
    """The character that seems to divide several labels in one, as in `billing;urgent`; None if there is none."""
    for separator in _DIVIDES + _MAY_DIVIDE:
        for longer, shorter in pairs:
            first, *others = (part.strip() for part in longer.split(separator))
            if first == shorter and all(others) and others and (separator in _DIVIDES or {*others} <= {*labels}):
                return separator
    return None


def _may_extend(candidates: Sequence[str]) -> bool:
    """Whether the text of a candidate begins with another's; otherwise its tokens do not either."""
    folded = sorted(candidate.casefold() for candidate in candidates)
    return any(longer.startswith(shorter) for shorter, longer in pairwise(folded))
