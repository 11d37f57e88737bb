"""Tokenisation, by one convention in every stage.

The demonstrations are one string, preceded by the special tokens that the tokenizer adds before a text; a query and
its candidate are tokenised together, without special tokens; the ids are concatenated. So one reading of the
demonstrations is plain in-context learning over the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import DemonstrationSet, Query
from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError
from deepthink_cli.provenance import TokenizedDemonstrations

_PROBE = 100  # characters that show which special tokens the tokenizer appends
# Ordinary words: arbitrary ids may be tokens that were never trained, whose activations are extreme.
_ORDINARY = (
    "It was late in the evening when the two friends came home from the theatre. They had seen a play about a small "
    "town by the sea, and they still talked about it: the first act was slow, but the end was warm, clever and very "
    "funny. One of them wanted to see it again, and the other one had already bought the book."
)


@dataclass(frozen=True)
class TokenizedQuery:
    """Token ids of a query: the prefix that its candidates share, and the tokens that each adds.

    `prefix` [q] is the longest start common to the query alone and to the query with every candidate;
    `answers[i]` [c_i] are the ids that candidate i adds to it. `where` names the query in messages.
    """

    prefix: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    where: str = ""

    @property
    def ids(self) -> Iterator[int]:
        """Every token of the query and its candidates."""
        return chain(self.prefix, *self.answers)

    @property
    def longest(self) -> int:
        """Tokens of the query with its longest candidate."""
        return len(self.prefix) + max(map(len, self.answers))


def tokenize_demonstrations(
    tokenizer: PreTrainedTokenizerBase, demonstrations: DemonstrationSet
) -> TokenizedDemonstrations:
    """Tokenise solved examples as one text that ends with the separator."""
    examples, template = demonstrations.examples, demonstrations.template
    text = template.demonstrations((example.text, example.label) for example in examples)
    return TokenizedDemonstrations(examples, template, demonstrations.labels, tuple(demonstration_ids(tokenizer, text)))


def demonstration_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of the demonstrations' text, after the special tokens that the tokenizer adds before a text.

    Those that it appends, such as EOS, are omitted, because the query follows.
    """
    ids = encode(tokenizer, [text], special=True)[0]
    return ids[: len(ids) - _appended(tokenizer, text[:_PROBE])]


def _appended(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """How many special tokens the tokenizer appends, found by locating the text's own tokens among all."""
    whole, (plain,) = encode(tokenizer, [text], special=True)[0], encode(tokenizer, [text], special=False)
    most = len(whole) - len(plain)  # the text itself may end with such a token
    return next((count for count in range(most + 1) if whole[most - count : len(whole) - count] == plain), 0)


def check_known(tokenizer: PreTrainedTokenizerBase, ids: Iterable[int], known: int, model: str, where: str) -> None:
    """Raise InputError, prefixed with `where`, for a token id beyond the `known` rows of a model's embedding."""
    largest = max(ids, default=0)
    if largest >= known:
        raise InputError(
            f"{where}: {tokenizer.decode([largest])!r} is token {largest} of the tokenizer, and {model} knows {known} "
            "tokens; change the text, or save the model with its embedding resized to the tokenizer "
            "(resize_token_embeddings)"
        )


def tokenize_queries(
    tokenizer: PreTrainedTokenizerBase, template: Template, queries: Sequence[Query]
) -> list[TokenizedQuery]:
    """Tokenise every query with each of its candidates.

    Raises InputError, naming the query, for a candidate that adds no token and for two that add the same.
    """
    texts: dict[str, int] = {}  # without duplicates, in order
    starts = [template.query(query.text) for query in queries]
    for query, start in zip(queries, starts, strict=True):
        for text in _texts(start, query):
            texts.setdefault(text, len(texts))
    ids = encode(tokenizer, list(texts), special=False)
    return [
        _spans(query, *(ids[texts[text]] for text in _texts(start, query)))
        for query, start in zip(queries, starts, strict=True)
    ]


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], special: bool) -> list[list[int]]:
    """Token ids of each text; a special token written in a text stays text.

    With `special`, the tokenizer adds its own special tokens by its own rule.
    """
    encoded = tokenizer(
        list(texts), add_special_tokens=special, split_special_tokens=True, return_attention_mask=False, verbose=False
    )
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def ordinary_ids(tokenizer: PreTrainedTokenizerBase, known: int, count: int) -> list[int]:
    """`count` token ids below `known` from an ordinary text, repeated if it is too short."""
    ids = [token for token in encode(tokenizer, [_ORDINARY], special=True)[0] if token < known] or [0]
    return (ids * (count // len(ids) + 1))[:count]


def _texts(start: str, query: Query) -> list[str]:
    """The query without and with the space before its label, and with every candidate."""
    # The space before a label is part of the label's first token, never of the query.
    return [start.rstrip(" "), start, *(start + candidate for candidate in query.candidates)]


def _spans(query: Query, alone: list[int], spaced: list[int], *together: list[int]) -> TokenizedQuery:
    """Prefix and answer ids, from the token ids of `_texts`."""
    start = min(common_length(alone, ids) for ids in together)
    answers = tuple(tuple(ids[start:]) for ids in together)
    where = f"{query.where}: " if query.where else ""
    for number, answer in enumerate(answers):
        if not answer or together[number] == spaced:
            raise InputError(
                f"{where}candidate {query.candidates[number]!r} has no tokens after the query; use another word"
            )
        if answer in answers[:number]:
            other = query.candidates[answers.index(answer)]
            raise InputError(
                f"{where}candidates {other!r} and {query.candidates[number]!r} are the same tokens; keep one"
            )
    if start == 0:
        raise InputError(f"{where}there is no text before the label; put text before it in the template")
    return TokenizedQuery(tuple(alone[:start]), answers, query.where)


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    return next(n for n in range(length) if left[n] != right[n])
