"""Texts that continue prompts after a memory: from the tokens of an engine to text, whole or piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.decoding import Decoding, Finish, Prompt
from deepthink_cli.memory import Memory

_UNFINISHED = "\ufffd"  # what a tokenizer writes for the first bytes of a character


@dataclass(frozen=True)
class Continuation:
    """A generated text, without the stop string that ended it, and why it ended.

    `token_ids` are all generated tokens, also those of the stop string and the model's end of text.
    """

    text: str
    token_ids: tuple[int, ...]
    finish: Finish


@dataclass(frozen=True)
class Piece:
    """Text that is added to the continuation of the prompt at `place`, and the whole continuation with the last one."""

    place: int
    text: str
    whole: Continuation | None = None


def continuations(
    engine: Engine, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding
) -> list[Continuation]:
    """Continue every prompt after a memory, or after nothing at all; in order. Raises as `Engine.generate`."""
    wholes: dict[int, Continuation] = {}
    for piece in pieces(engine, memory, prompts, decoding):
        if piece.whole is not None:
            wholes[piece.place] = piece.whole
    return [wholes[place] for place in range(len(prompts))]


def pieces(engine: Engine, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Piece]:
    """Yield the texts that continue the prompts as they are generated; raises as `Engine.generate`.

    Text is held back while it may be the beginning of a stop string, or of a character of several tokens.
    """
    texts = [_GrowingText(engine.tokenizer, decoding.stop or ()) for _ in prompts]
    for token in engine.generate(memory, prompts, decoding):
        text = texts[token.place]
        added = text.add(token.id, token.finish)
        whole = None if token.finish is None else Continuation(text.shown, tuple(text.ids), token.finish)
        if added or whole is not None:
            yield Piece(token.place, added, whole)


class _GrowingText:
    """The text of one continuation: its tokens and how much of it has been shown."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> None:
        self._tokenizer: Any = tokenizer
        self._stop = stop
        self.ids: list[int] = []
        self.shown = ""

    def add(self, token: int, finish: Finish | None) -> str:
        """The text that can be shown after another token."""
        self.ids.append(token)
        ids = self.ids[:-1] if finish == "end" else self.ids
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if finish is None:
            text = text.rstrip(_UNFINISHED)
            text = text[: len(text) - max((_begun(text, stop) for stop in self._stop), default=0)]
        else:
            text = text[: min((text.index(stop) for stop in self._stop if stop in text), default=None)]
        added = text[len(self.shown) :] if text.startswith(self.shown) else ""
        if added or finish is not None:
            self.shown = text
        return added


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop string."""
    return next((count for count in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:count])), 0)
