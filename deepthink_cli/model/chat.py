"""Tokenisation of demonstrations and queries as turns of one conversation, by the tokenizer's own chat template.

The conversation is cut after the last special token before the query's own text. A tokenizer splits every text at its
special tokens before it does anything else, so the ids of the two parts are those of the whole conversation, for every
query: the demonstrations end with that token, and a query is tokenised after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.chat import Chat, Turn, question, reply, solved
from deepthink_cli.data.examples import DemonstrationSet, Query
from deepthink_cli.errors import InputError
from deepthink_cli.model.chat_template import ChatTemplate, template_sha256
from deepthink_cli.provenance import TokenizedDemonstrations

_PROBES = ("A probe.", "0 is another.")  # two texts without a common start


def check_template(tokenizer: PreTrainedTokenizerBase, chat: Chat, name: str) -> None:
    """Raise InputError, naming the memory, if its demonstrations were tokenised with another chat template."""
    if chat.template_sha256 not in ("", template_sha256(tokenizer)):
        raise InputError(
            f"{name}: made with another chat template than the tokenizer's; give -m the model as it was, or think again"
        )


class Conversation:
    """The turns of the demonstrations, to be followed by the query's.

    `token_ids` [L] are the demonstrations', `chat` is the given one with the digest of the template, `added` the bytes
    that the template writes around a query. Raises InputError for a tokenizer without a chat template, for a template
    that refuses these turns or cannot be split, and for a chat that was tokenised with another template.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, demonstrations: DemonstrationSet | TokenizedDemonstrations, chat: Chat
    ) -> None:
        check_template(tokenizer, chat, "this memory")
        self._rendering = ChatTemplate(tokenizer)
        self.chat = replace(chat, template_sha256=template_sha256(tokenizer))
        self._template, self._labels, self._word = demonstrations.template, demonstrations.labels, demonstrations.word
        examples = [(example.text, self._word(example.label)) for example in demonstrations.examples]
        self._turns = list(map(self._rendering.safe, [*chat.opening(), *solved(self._template, examples)]))
        asked: list[Turn] = [{"role": "user", "content": probe} for probe in _PROBES]
        self._start, self._separator = self._cut(asked)
        self._reply = self._opening(asked[0])
        (ids,) = self._rendering.encode([self._start])
        self.token_ids = tuple(ids)
        start = self._asked(asked[0], self._labels or _PROBES[:1], "")
        self._check_split(start)
        self.added = len(start.encode()) - len(_PROBES[0])

    def texts(self, query: Query) -> tuple[str, list[str]]:
        """A query after the demonstrations: up to the assistant's reply, and with every candidate as the reply.

        Raises InputError, naming the query, if the template does not write it, or a candidate, after the others.
        """
        # A reply that the template changes would do so for every query; those of the labels were rendered before.
        uncertain = tuple(label for label in query.candidates if label not in self._labels) or query.candidates[:1]
        asked = self._rendering.safe(question(self._template, query.text))
        start = self._asked(asked, uncertain, f"{query.where}: " if query.where else "")
        return start, [start + self._rendering.safe(reply(self._word(label)))["content"] for label in query.candidates]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts that follow the demonstrations."""
        return [ids[1:] for ids in self._rendering.encode([self._separator + text for text in texts])]

    def dialogue(self, turns: Sequence[Turn]) -> list[int]:
        """Token ids of further turns after the demonstrations; after a user's turn, up to the assistant's reply.

        Raises InputError if the template writes the demonstrations in another way before them.
        """
        asked = turns[-1]["role"] == "user"
        (text,) = self._rendering.render([[*self._turns, *map(self._rendering.safe, turns)]], prompt=asked)
        if not text.startswith(self._start):
            raise InputError("the chat template writes the demonstrations in another way before these turns")
        return self.ids([text[len(self._start) :] + (self._reply if asked else "")])[0]

    def end(self) -> str:
        """What the template writes after the text of the last reply, such as the token that ends a turn."""
        asked: Turn = {"role": "user", "content": _PROBES[0]}
        (text,) = self._rendering.render([[*self._turns, asked, reply(_PROBES[1])]])
        return text.rpartition(_PROBES[1])[2]

    def _cut(self, asked: Sequence[Turn]) -> tuple[str, str]:
        """The text of the demonstrations up to the last special token before the query's own text, and that token."""
        common = _common(*self._rendering.render([[*self._turns, turn] for turn in asked], prompt=True))
        cuts = list(self._rendering.separators().finditer(common))
        start = common[: cuts[-1].end()] if cuts else ""
        changed = reply(f"x{self._turns[-1]['content']}")
        (other,) = self._rendering.render([[*self._turns[:-1], changed, asked[0]]], prompt=True)
        if not cuts or other.startswith(start):
            raise InputError(
                "--chat: the chat template cannot be split: it writes no special token between the last demonstration "
                "and the query, or the demonstrations depend on the query; omit --chat"
            )
        return start, cuts[-1][0]

    def _opening(self, asked: Turn) -> str:
        """What the template writes between its generation prompt and the text of a reply, such as an empty thought."""
        (prompt,) = self._rendering.render([[*self._turns, asked]], prompt=True)
        common = _common(*self._rendering.render([[*self._turns, asked, reply(probe)] for probe in _PROBES]))
        if not common.startswith(prompt):
            raise InputError(
                "--chat: the chat template cannot be split: its prompt for a reply is not what it writes before one; "
                f"omit {'--chat' if self.chat.system is None else '--system'}"
            )
        return common[len(prompt) :]

    def _asked(self, asked: Turn, labels: Sequence[str], where: str) -> str:
        """The text from the end of the demonstrations to the reply; checks it against the rendered conversations."""
        (prompt,) = self._rendering.render([[*self._turns, asked]], prompt=True)
        if not prompt.startswith(self._start):
            raise InputError(
                f"{where}the chat template writes the demonstrations in another way before this text; change the text, "
                "or omit --chat"
            )
        replies = [self._rendering.safe(reply(self._word(label))) for label in labels]
        answered = self._rendering.render([[*self._turns, asked, turn] for turn in replies])
        for label, turn, text in zip(labels, replies, answered, strict=True):
            if not text.startswith(prompt + self._reply + turn["content"]):
                raise InputError(
                    f"{where}candidate {label!r} is changed by the chat template; use another word, or omit --chat"
                )
        return prompt[len(self._start) :] + self._reply

    def _check_split(self, start: str) -> None:
        """Raise InputError unless the demonstrations and a query that is written `start` have the ids of both together.

        Only a tokenizer that does not split at its special tokens first fails this.
        """
        whole, rest = self._rendering.encode([self._start + start])[0], self.ids([start])[0]
        if whole != [*self.token_ids, *rest]:
            raise InputError(
                "--chat: the chat template cannot be split: the demonstrations and a query have other tokens apart "
                f"than together, around {self._separator!r}; omit --chat"
            )


def _common(left: str, right: str) -> str:
    """The longest common start of two texts."""
    return left[: next((n for n, pair in enumerate(zip(left, right, strict=False)) if len(set(pair)) > 1), None)]
