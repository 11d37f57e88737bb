"""A tokenizer's chat template: rendered reproducibly, with control tokens written in texts kept as text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.chat import Turn
from deepthink_cli.errors import InputError
from deepthink_cli.model.failures import library_errors

# Templates that write the current date get this one, the default date of Llama 3's template: the same demonstrations
# have the same ids on every day.
_DATE = {"%d": "26", "%m": "07", "%Y": "2024", "%y": "24", "%b": "Jul", "%B": "July", "%a": "Fri", "%A": "Friday"}
_TIME = {"%H": "00", "%M": "00", "%S": "00"}
_CLOCK = "strftime_now"
_BREAK = "\ufdd0"  # not a character: Unicode reserves it for the internal use of programs


class ChatTemplate:
    """The chat template of a tokenizer; raises InputError for a tokenizer without one."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        name = tokenizer.name_or_path
        source = _source(tokenizer)
        if not source:
            raise InputError(
                f"--chat: the tokenizer{f' of {name}' if name else ''} has no chat template; use a model that was "
                "trained on conversations, or omit --chat"
            )
        self._source = _dated(source)
        self._control = _any_of(
            token.content for token in _tokens(tokenizer) if token.special or token.content in source
        )

    def render(self, conversations: Sequence[Sequence[Turn]], prompt: bool = False) -> list[str]:
        """The text of every conversation, with `prompt` up to where the assistant's next reply begins.

        Raises InputError with the template's reason if it refuses a conversation.
        """
        if not conversations:
            return []
        system = any(turn["role"] == "system" for turns in conversations for turn in turns)
        with library_errors(
            "--chat: the chat template of the tokenizer cannot write this conversation",
            "omit --system" if system else "omit --chat",
        ):
            texts: Any = self.tokenizer.apply_chat_template(
                [list(turns) for turns in conversations],
                chat_template=self._source,
                tokenize=False,
                add_generation_prompt=prompt,
            )
        return list(texts)

    def safe(self, turn: Turn) -> Turn:
        """The turn with every control token in its text split by a mark, which `encode` removes."""
        split = self._control.sub(lambda match: match[0][0] + _BREAK + match[0][1:], turn["content"])
        return {**turn, "content": split}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered texts: the template's control tokens are tokens, no others are added."""
        pieces = [text.split(_BREAK) for text in texts]
        first = self._ids([parts[0] for parts in pieces])
        return [
            [*ids, *(token for part in parts[1:] for token in self._continued(part))]
            for ids, parts in zip(first, pieces, strict=True)
        ]

    def separators(self) -> re.Pattern[str]:
        """Matches the tokens at which the tokenizer splits every text before anything else, whatever surrounds them."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        unchanged = backend is not None and backend.normalizer is None
        return _any_of(
            token.content
            for token in _tokens(self.tokenizer)
            if not token.single_word and (unchanged or not token.normalized)
        )

    def _continued(self, text: str) -> list[int]:
        """Token ids of a text after another one: without the space that some tokenizers add before a text."""
        newline, ids = self._ids(["\n", "\n" + text])
        return ids[len(newline) :] if ids[: len(newline)] == newline else self._ids([text])[0]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer(
            list(texts),
            add_special_tokens=False,
            split_special_tokens=False,
            return_attention_mask=False,
            verbose=False,
        )
        ids: list[list[int]] = encoded["input_ids"]
        return ids


def template_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of the source of a tokenizer's chat template."""
    return hashlib.sha256(_source(tokenizer).encode(errors="surrogatepass")).hexdigest()


def _source(tokenizer: PreTrainedTokenizerBase) -> str:
    """The chat template, or the default one of several; empty if there is none."""
    templates = getattr(tokenizer, "chat_template", None)
    return (templates.get("default") if isinstance(templates, dict) else templates) or ""


def _tokens(tokenizer: PreTrainedTokenizerBase) -> Iterator[AddedToken]:
    """The tokenizer's added tokens, except white space, which templates write as ordinary text."""
    return (token for token in tokenizer.added_tokens_decoder.values() if token.content.strip())


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Matches the longest of several words; matches nothing if there are none."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _dated(source: str) -> str:
    """The template with a fixed date instead of the clock, if it reads the clock."""
    if _CLOCK not in source:
        return source
    filters = "".join(f'|replace("{code}", "{value}")' for code, value in (_DATE | _TIME).items())
    # The line break after a block is not part of the output.
    return f"{{% macro {_CLOCK}(format) %}}{{{{ format{filters} }}}}{{% endmacro %}}\n{source}"
