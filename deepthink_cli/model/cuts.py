"""The place in a text where it can be cut so that its tokens are the tokens of its two parts."""

from __future__ import annotations

from itertools import pairwise
from string import ascii_letters
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_END_OF_WHITE_SPACE = r"(?!\\S)"  # as JSON
_SPACE = "▁"  # as SentencePiece writes it
_AFTER_A_WORD = frozenset(":?.!,;)]>=")


def cut_in(tokenizer: PreTrainedTokenizerBase, text: str) -> int | None:
    """The first place at which a text can be cut, whatever stands before or after the text; None without a place.

    It lies between a letter and a punctuation mark that no token of the vocabulary holds together, so that neither the
    merges of byte pairs nor the pieces of a unigram model cross it. None for other kinds of tokenizers, and for
    patterns that divide a text into words by the text after them, except the usual pattern for white space.
    """
    from tokenizers import models

    if not tokenizer.is_fast or not isinstance(tokenizer.backend_tokenizer.model, models.BPE | models.Unigram):
        return None
    normalizer, pre_tokenizer = tokenizer.backend_tokenizer.normalizer, tokenizer.backend_tokenizer.pre_tokenizer
    if any(_looks_around(step) for step in (normalizer, pre_tokenizer) if step is not None):
        return None
    if normalizer is not None and not normalizer.normalize_str(text).replace(_SPACE, " ").endswith(text):
        return None  # the vocabulary holds the normalised text
    pairs = {
        left + right: place
        for place, (left, right) in reversed([*enumerate(pairwise(text), start=1)])
        if left in ascii_letters and right in _AFTER_A_WORD
    }
    if not pairs:
        return None
    vocabulary = tokenizer.get_vocab()
    return min((place for pair, place in pairs.items() if not any(pair in token for token in vocabulary)), default=None)


def _looks_around(step: Any) -> bool:
    """Whether a regular expression of a normalizer or pre-tokenizer tests text that it does not match."""
    state = step.__getstate__().decode().replace(_END_OF_WHITE_SPACE, "")
    return any(begin in state for begin in ("(?=", "(?!", "(?<"))
