"""A conversation after a memory: every turn continues from the keys and values of the turns before it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.engine.decoding import Decoding, Prompt
from deepthink_cli.errors import InputError
from deepthink_cli.generation import ended, pieces
from deepthink_cli.model.boundary import common_length
from deepthink_cli.model.chat import Conversation, reply
from deepthink_cli.model.chat import question as asked
from deepthink_cli.model.limits import remaining_tokens
from deepthink_cli.model.tokens import end_of_demonstrations
from deepthink_cli.provenance import check_model

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


class Dialogue:
    """Answers questions one after another, each after the demonstrations and the earlier exchanges.

    The next answer follows the `exchanges`, pairs of a question and its answer. The oldest are forgotten when the
    model's context is full, and counted in `forgotten`. Raises InputError for a memory without a template, or whose
    template needs several fields.
    """

    def __init__(self, engine: Engine, memory: Memory, decoding: Decoding | None = None) -> None:
        provenance = memory.provenance
        if provenance is None:
            raise InputError("this memory has no template; use one from think() or load_memory()")
        check_model(provenance, engine.identity, "this memory")
        demonstrations = provenance.demonstrations
        if len(demonstrations.template.text_fields) > 1:
            fields = ", ".join(demonstrations.template.text_fields)
            raise InputError(f"chat: the memory's template needs the fields {fields}; use deepthink generate")
        self.engine, self.demonstrations, self.length = engine, demonstrations, memory.length
        self.decoding = ended(decoding or Decoding(), engine.tokenizer, demonstrations)
        self.exchanges: list[tuple[str, str]] = []
        self.forgotten = 0
        # `_read` are the tokens after the demonstrations whose keys and values are in the past.
        self._past, self._read = engine.place(memory), tuple[int, ...]()
        chat, tokenizer = demonstrations.chat, engine.tokenizer
        self._conversation = None if chat is None else Conversation(tokenizer, demonstrations, chat)
        self._end = end_of_demonstrations(tokenizer, demonstrations) if chat is None else None

    def ask(self, question: str) -> Generator[str, None, None]:
        """Yield the pieces of the answer as they are generated.

        The exchange is remembered with the part of the answer that was generated, also if the caller stops early.
        Raises InputError for a question that does not fit the model's context.
        """
        ids, new = self._fitted(question)
        start = self._keep(ids[:-1])  # at least one token is read for its logits
        decoding = self.decoding.model_copy(update={"max_new_tokens": new})
        prompt = Prompt(ids[start:], self.decoding.seed + len(self.exchanges), "this question")
        answer = ""
        try:
            for piece in pieces(self.engine, self._past, [prompt], decoding):
                answer += piece.text
                yield piece.text
        finally:
            if answer:
                self.exchanges.append((question, answer))
                self._read_exchanges()

    def _read_exchanges(self) -> None:
        """Read the last exchange, so that the next question continues after it."""
        ids = self._ids(self.exchanges)
        start = self._keep(ids)
        rest, length = ids[start:], self.length + start
        most = self.engine.limits.max_tokens()
        if rest and (most is None or length + len(rest) <= most):  # else the next question reads a part
            (present,) = self.engine.read([Reading(rest, self._past, length)])
            self._past, self._read = self._past.followed_by(present), ids

    def _keep(self, ids: tuple[int, ...]) -> int:
        """Keep the part of the past that begins as `ids` do; returns the number of these tokens."""
        start = common_length(self._read, ids)
        self._past, self._read = self._past.tokens(0, self.length + start), ids[:start]
        return start

    def _fitted(self, question: str) -> tuple[tuple[int, ...], int]:
        """The tokens from the demonstrations to the answer, and the number of new ones; forgets what does not fit."""
        wanted = self.decoding.max_new_tokens
        while True:
            ids = self._ids(self.exchanges, question)
            remaining = remaining_tokens(self.engine.limits, self.length, len(ids))
            if remaining is None or remaining >= wanted:
                return ids, wanted
            if not self.exchanges:
                return ids, max(1, remaining)  # the engine refuses a question that leaves none
            del self.exchanges[0]
            self.forgotten += 1

    def _ids(self, exchanges: Sequence[tuple[str, str]], question: str | None = None) -> tuple[int, ...]:
        """Token ids of exchanges after the demonstrations, and of a question up to its answer."""
        template = self.demonstrations.template
        solved = [(question, answer.strip()) for question, answer in exchanges]
        if self._conversation is not None:
            turns = [turn for text, answer in solved for turn in (asked(template, text), reply(answer))]
            return tuple(self._conversation.dialogue(turns + ([] if question is None else [asked(template, question)])))
        text = template.demonstrations(solved) + ("" if question is None else template.query(question).rstrip(" "))
        assert self._end is not None
        return tuple(self._end.after(self.engine.tokenizer, [text])[0])
