"""Labels that a sum of log-probabilities never chooses, since their tokens begin with the tokens of another label.

Every further token lowers the sum, so that `bug report` never has a higher sum than `bug`. A mean per token may rise.
With an end, `bug report` no longer begins with the whole of `bug`. A calibration compares other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import Query, Text
from deepthink_cli.data.template import Template
from deepthink_cli.errors import option
from deepthink_cli.events import Tell, Warn
from deepthink_cli.model.tokens import TokenizedQuery, query_tokenizer
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.score import SCORES
from deepthink_cli.scoring.scoring import Scoring

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NAMED = 3  # labels in a warning
_DIVIDES, _MAY_DIVIDE = ";|", ",/"  # characters that no word has, and characters that some words have
_NEVER = "can never be predicted by a sum of log-probabilities: its tokens begin with those of"


def check_labels(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Template | TokenizedDemonstrations,
    scoring: Scoring,
    text: Text,
    labels: Sequence[str],
    tell: Tell,
    *,
    where: str = "",
    options: str | None = None,
) -> TokenizedQuery:
    """The tokens of a query of `prompt` with this text; warns of labels whose tokens begin with another's tokens.

    `where` begins the warning, as in `task sst2: `; `options`, to be used in place of a sum, ends it. Raises InputError
    as `query_tokenizer`.
    """
    query = Query(text, tuple(labels), where="the labels")
    (tokenized,) = query_tokenizer(tokenizer, prompt, scoring)([query])
    if pairs := [(labels[longer], labels[shorter]) for longer, shorter in tokenized.extended.items()]:
        separator = _separator(pairs, labels)
        way = "rename it" if options is None else f"rename it, or use {options}"
        if separator is not None:
            divided = f"deepthink think {option('label_separator')} '{separator}'"
            way = f"if rows have several labels, make the memory with {divided}"
        (longer, shorter), *more = pairs
        others = [f"{label!r} after {start!r}" for label, start in more[: _NAMED - 1]]
        others += [f"{len(pairs) - _NAMED} more"] if len(pairs) > _NAMED else []
        also = f" (also {', '.join(others)})" if others else ""
        tell(Warn(f"{where}label {longer!r} {_NEVER} {shorter!r}{also}; {way}"))
    return tokenized


def other_score(scoring: Scoring, typed: str = "{option} {name}") -> str | None:
    """The option of a score whose candidates have ends, so that none begins with another; None if one is in use."""
    for name in SCORES.own:
        if SCORES[name].separates and scoring.get("score") != name:
            return typed.format(option=option("score"), name=name)
    return None


def _separator(pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> str | None:
    """The character that seems to divide several labels in one, as in `billing;urgent`; None if there is none."""
    for separator in _DIVIDES + _MAY_DIVIDE:
        for longer, shorter in pairs:
            first, *others = (part.strip() for part in longer.split(separator))
            if first == shorter and all(others) and others and (separator in _DIVIDES or {*others} <= {*labels}):
                return separator
    return None
