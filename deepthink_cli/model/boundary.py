"""The boundary between the demonstrations and a query in a prompt, as token ids.

A prompt has the ids that its tokenizer gives the whole prompt. The memory holds the first ids, which no query changes;
a query has the others. A piece that is tokenised alone may have other ids: GPT-2's tokenizer writes two line breaks
before a letter as two tokens, and at the end of a text as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_letters
from typing import TYPE_CHECKING

from deepthink_cli.data.template import PARTS, Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# Beginnings of a query's own text: they show which tokens of the demonstrations depend on the following text.
_BEGINNINGS = ("A probe.", "0 is another.", '"Quoted"', "(in brackets)", "-", "@", "Ça va", "你好", "\u0301", "😀")
_PROBE = 100  # characters that show which special tokens the tokenizer appends
# Ordinary words: arbitrary ids may be tokens that were never trained, whose activations are extreme.
ORDINARY = (
    "It was late in the evening when the two friends came home from the theatre. They had seen a play about a small "
    "town by the sea, and they still talked about it: the first act was slow, but the end was warm, clever and very "
    "funny. One of them wanted to see it again, and the other one had already bought the book."
)


@dataclass(frozen=True)
class Boundary:
    """The end of solved demonstrations, which queries follow.

    `ids` [L] are the tokens of the demonstrations in every prompt, with the special tokens that the tokenizer adds
    before a text. A following text is tokenised after `context`, the end of the demonstrations' text; `held` are the
    tokens of the context among `ids`. With the same context and held tokens, a following text has the same ids.
    """

    ids: tuple[int, ...] = ()
    context: str = ""
    held: tuple[int, ...] = ()

    def after(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts that follow the demonstrations, as they are in the whole prompt.

        A text that would change the last tokens of the demonstrations is tokenised alone.
        """
        count = len(self.held)
        wholes = encode(tokenizer, [self.context + text for text in texts], special=False)
        alone = [place for place, ids in enumerate(wholes) if tuple(ids[:count]) != self.held]
        found = [ids[count:] for ids in wholes]
        for place, ids in zip(alone, encode(tokenizer, [texts[place] for place in alone], special=False), strict=True):
            found[place] = ids
        return found


def boundary(tokenizer: PreTrainedTokenizerBase, template: Template, demonstrations: Sequence[str]) -> Boundary:
    """The boundary between solved demonstrations, each a text that ends with the separator, and a query.

    It is the end of the demonstrations' text, or lies before the first token that reaches across this end or depends on
    the query. Without demonstrations, and for a template whose `tokens` are of parts, queries are tokenised alone.
    """
    text = "".join(demonstrations)
    if not text:
        return Boundary(special_ids(tokenizer))
    if template.tokens == PARTS:
        return Boundary(tuple(demonstration_ids(tokenizer, text)))
    following = _following(template)
    whole, within = _whole(tokenizer, text, following[0])
    for context in filter(None, (template.separator, demonstrations[-1], text)):
        ids = encode(tokenizer, [context + each for each in following], special=False)
        before = len(whole) - len(ids[0])  # tokens of the demonstrations before the context
        length = min(within, before + min(common_length(ids[0], each) for each in ids))
        if before <= length and whole[length:] == ids[0][length - before :]:
            break
    return Boundary((*special_ids(tokenizer), *whole[:length]), context, tuple(ids[0][: length - before]))


def followed(template: Template, text: str) -> str:
    """A text of demonstrations with the beginning of the next text in a prompt, for the tokens at its end."""
    return text if template.tokens == PARTS else text + _following(template)[0]


def demonstration_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a text after the special tokens that the tokenizer adds before it, without those that it appends."""
    ids, beginning = encode(tokenizer, [text], special=True)[0], text[:_PROBE]
    # The number of appended tokens is found by locating a text's own tokens among all.
    whole, (plain,) = encode(tokenizer, [beginning], special=True)[0], encode(tokenizer, [beginning], special=False)
    most = len(whole) - len(plain)  # the text itself may end with such a token
    appended = (count for count in range(most + 1) if whole[most - count : len(whole) - count] == plain)
    return ids[: len(ids) - next(appended, 0)]


def special_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The special tokens, such as BOS, that the tokenizer adds before a text; often none."""
    (plain,) = encode(tokenizer, [ORDINARY], special=False)
    ids = demonstration_ids(tokenizer, ORDINARY)
    return tuple(ids[: len(ids) - len(plain)])


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], special: bool) -> list[list[int]]:
    """Token ids of each text; a special token written in a text stays text.

    With `special`, the tokenizer adds its own special tokens by its own rule.
    """
    if not texts:
        return []
    encoded = tokenizer(
        list(texts), add_special_tokens=special, split_special_tokens=True, return_attention_mask=False, verbose=False
    )
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """The number of leading tokens that two sequences share."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    return next(n for n in range(length) if left[n] != right[n])


def _following(template: Template) -> list[str]:
    """Beginnings of a query: the template's first words, and different texts after them."""
    begin = template.words[0]
    return [begin + text for text in (_BEGINNINGS[:2] if begin.strip() else _BEGINNINGS)]


def _whole(tokenizer: PreTrainedTokenizerBase, text: str, following: str) -> tuple[list[int], int]:
    """The ids of a text and its following text together, and the number of ids that end within the text."""
    if not tokenizer.is_fast:  # it does not know the characters of a token
        alone, whole = encode(tokenizer, [text, text + following], special=False)
        return whole, common_length(alone, whole)
    encoded = tokenizer(
        text + following,
        add_special_tokens=False,
        split_special_tokens=True,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )
    ends = [stop for _, stop in encoded["offset_mapping"]]
    return encoded["input_ids"], next((place for place, stop in enumerate(ends) if stop > len(text)), len(ends))


_END_OF_WHITE_SPACE = r"(?!\\S)"  # as JSON
_SPACE = "▁"  # as SentencePiece writes it
_AFTER_A_WORD = frozenset(":?.!,;)]>=")


def cut_in(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """The first place at which a text can be cut, whatever stands before or after the text; its end if there is none.

    It lies between a letter and a punctuation mark that no token of the vocabulary holds together, so that neither the
    merges of byte pairs nor the pieces of a unigram model cross it. None exists for other kinds of tokenizers and for
    patterns that divide a text into words by the text after them, except the usual pattern for white space.
    """
    from tokenizers import models

    if not tokenizer.is_fast or not isinstance(tokenizer.backend_tokenizer.model, models.BPE | models.Unigram):
        return len(text)
    normalizer, pre_tokenizer = tokenizer.backend_tokenizer.normalizer, tokenizer.backend_tokenizer.pre_tokenizer
    for step in filter(None, (normalizer, pre_tokenizer)):
        # A regular expression must not test text that it does not match.
        state = step.__getstate__().decode().replace(_END_OF_WHITE_SPACE, "")
        if any(begin in state for begin in ("(?=", "(?!", "(?<")):
            return len(text)
    if normalizer is not None and not normalizer.normalize_str(text).replace(_SPACE, " ").endswith(text):
        return len(text)  # the vocabulary holds the normalised text
    pairs = {
        left + right: place
        for place, (left, right) in reversed([*enumerate(pairwise(text), start=1)])
        if left in ascii_letters and right in _AFTER_A_WORD
    }
    vocabulary = tokenizer.get_vocab() if pairs else {}
    places = (place for pair, place in pairs.items() if not any(pair in token for token in vocabulary))
    return min(places, default=len(text))
