"""Conversations by a model's chat template, and the requirements of a template."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deepthink_cli.data.examples import DemonstrationSet, Query
from deepthink_cli.data.template import MAX_TEXT, Chat, Template
from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.io.hub import library_errors
from deepthink_cli.io.processes import exceeds

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerBase

# Templates that write the current date get this one, the default date of Llama 3's template: the same demonstrations
# have the same ids on every day.
_DATE = {"%d": "26", "%m": "07", "%Y": "2024", "%y": "24", "%b": "Jul", "%B": "July", "%a": "Fri", "%A": "Friday"}
_TIME = {"%H": "00", "%M": "00", "%S": "00"}
_CLOCK = "strftime_now"
_BREAK = "\ufdd0"  # not a character: Unicode reserves it for the internal use of programs

Turn = dict[str, str]  # `role` and `content`, as transformers' apply_chat_template takes them
_SPLIT = "the chat template cannot be split:"


def _refusal(reason: str, omitted: str = "chat") -> InputError:
    """The error for a conversation that cannot be written, whose way out is to omit an option."""
    return InputError.of("chat", None, f"{reason} omit {option(omitted)}")


class ChatTemplate:
    """The chat template of a tokenizer; raises InputError for a tokenizer without one."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        name = tokenizer.name_or_path
        source = _source(tokenizer)
        if not source:
            owner = f"the tokenizer{f' of {name}' if name else ''}"
            raise _refusal(f"{owner} has no chat template; use a model that was trained on conversations, or")
        self._source, self._tried = _dated(source), False
        self._control = _any_of(
            token.content for token in _tokens(tokenizer) if token.special or token.content in source
        )

    def render(self, conversations: Sequence[Sequence[Turn]], prompt: bool = False) -> list[str]:
        """The text of every conversation; with `prompt`, up to the beginning of the assistant's next reply.

        Raises InputError, with the template's reason, if it refuses a conversation, and if it needs too much time,
        memory or characters. Time and memory are limited only for the first conversations.
        """
        if not conversations:
            return []

        def write() -> list[str]:
            return list(
                self.tokenizer.apply_chat_template(
                    [list(turns) for turns in conversations],
                    chat_template=self._source,
                    tokenize=False,
                    add_generation_prompt=prompt,
                )
            )

        system = any(turn["role"] == "system" for turns in conversations for turn in turns)
        with library_errors(
            Problem.of("chat", None, "the chat template of the tokenizer cannot write this conversation"),
            f"omit {option('system')}" if system else f"omit {option('chat')}",
        ):
            excess = None if self._tried else exceeds(write)
            texts = [] if excess else write()
        self._tried = True
        given = sum(len(turn["content"]) for turns in conversations for turn in turns)
        if excess or sum(map(len, texts)) > given + MAX_TEXT * len(conversations):
            most = excess or f"{MAX_TEXT} characters"
            raise _refusal(f"the chat template of the tokenizer takes more than {most} for this conversation;")
        return texts

    def safe(self, turn: Turn) -> Turn:
        """The turn with every control token in its text split by a mark, which `encode` removes."""
        split = self._control.sub(lambda match: match[0][0] + _BREAK + match[0][1:], turn["content"])
        return {**turn, "content": split}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered texts: the template's control tokens become tokens, and no special tokens are added."""
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
        """Token ids of a text after another text: without the space that some tokenizers add before a text."""
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
    """The chat template, or the default template of several; empty if there is none."""
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


def question(template: Template, text: str | Mapping[str, str], written: Callable[[str], str] = str) -> Turn:
    """The user's turn: the template up to the label, without spaces and line breaks at its ends.

    `written` is as in `Template.query`.
    """
    return {"role": "user", "content": template.query(text, written).strip()}


def reply(label: str) -> Turn:
    """The assistant's turn: the label alone."""
    return {"role": "assistant", "content": label.strip()}


def turns_of(demonstrations: DemonstrationSet, chat: Chat) -> list[Turn]:
    """The system message, then two turns for each demonstration: the user asks, the assistant gives the label."""
    turns: list[Turn] = [] if chat.system is None else [{"role": "system", "content": chat.system}]
    for example in demonstrations.examples:
        turns += [question(demonstrations.template, example.text), reply(demonstrations.word(example.label))]
    return turns


_PROBES = ("A probe.", "0 is another.")  # two texts without a common start


def check_template(tokenizer: PreTrainedTokenizerBase, chat: Chat, name: str) -> None:
    """Raise InputError, naming the memory, if its demonstrations were tokenised with another chat template."""
    if chat.template_sha256 not in ("", template_sha256(tokenizer)):
        raise InputError(
            f"{name}: made with another chat template than the tokenizer's; give {option('model')} the model "
            "as it was, or run deepthink think again"
        )


class Conversation:
    """The turns of the demonstrations, which a query's turns follow.

    `token_ids` [L] are the ids of the demonstrations. `chat` is the given chat with the digest of the template. `added`
    is the number of bytes that the template writes around a query. Raises InputError for a tokenizer without a chat
    template, for a template that refuses these turns or cannot be split, and for a chat that was tokenised with another
    template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, demonstrations: DemonstrationSet, chat: Chat) -> None:
        check_template(tokenizer, chat, "this memory")
        self._rendering = ChatTemplate(tokenizer)
        self.chat = replace(chat, template_sha256=template_sha256(tokenizer))
        self._template, self._labels, self._word = demonstrations.template, demonstrations.labels, demonstrations.word
        self._turns = list(map(self._rendering.safe, turns_of(demonstrations, chat)))
        asked: list[Turn] = [{"role": "user", "content": probe} for probe in _PROBES]
        self._start, self._separator = self._cut(asked)
        self._reply = self._opening(asked[0])
        (ids,) = self._rendering.encode([self._start])
        self.token_ids = tuple(ids)
        start = self._asked(asked[0], self._labels or _PROBES[:1], "")
        self._check_split(start)
        self.added = len(start.encode()) - len(_PROBES[0])

    def texts(self, query: Query, written: Callable[[str], str]) -> tuple[str, list[str]]:
        """The text of a query after the demonstrations, up to the assistant's reply, and with every candidate as reply.

        `written` changes the text of the query, up to the end of its last field. Raises InputError, naming the query,
        if the template changes the demonstrations before it, or a candidate.
        """
        # The template changes a reply in every query or in none; the labels were rendered before.
        uncertain = tuple(label for label in query.candidates if label not in self._labels) or query.candidates[:1]
        asked = self._rendering.safe(question(self._template, query.text, written))
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
        """The template's text after the last reply, such as the token that ends a turn."""
        asked: Turn = {"role": "user", "content": _PROBES[0]}
        (text,) = self._rendering.render([[*self._turns, asked, reply(_PROBES[1])]])
        return text.rpartition(_PROBES[1])[2]

    def after_reply(self) -> str:
        """The template's text between a reply and the next question."""
        asked: Turn = {"role": "user", "content": _PROBES[0]}
        (text,) = self._rendering.render([[*self._turns, asked, reply(_PROBES[1]), asked]])
        return text.rpartition(_PROBES[1])[2].partition(_PROBES[0])[0]

    def _cut(self, asked: Sequence[Turn]) -> tuple[str, str]:
        """The text of the demonstrations up to the last special token before the query's own text, and the token."""
        common = _common(*self._rendering.render([[*self._turns, turn] for turn in asked], prompt=True))
        cuts = list(self._rendering.separators().finditer(common))
        start = common[: cuts[-1].end()] if cuts else ""
        changed = reply(f"x{self._turns[-1]['content']}")
        (other,) = self._rendering.render([[*self._turns[:-1], changed, asked[0]]], prompt=True)
        if not cuts or other.startswith(start):
            raise _refusal(
                f"{_SPLIT} it writes no special token between the last demonstration and the query, or the "
                "demonstrations depend on the query;"
            )
        return start, cuts[-1][0]

    def _opening(self, asked: Turn) -> str:
        """The template's text between its generation prompt and a reply, such as an empty thought."""
        (prompt,) = self._rendering.render([[*self._turns, asked]], prompt=True)
        common = _common(*self._rendering.render([[*self._turns, asked, reply(probe)] for probe in _PROBES]))
        if not common.startswith(prompt):
            omitted = "chat" if self.chat.system is None else "system"
            raise _refusal(f"{_SPLIT} its prompt for a reply is not what it writes before one;", omitted)
        return common[len(prompt) :]

    def _asked(self, asked: Turn, labels: Sequence[str], where: str) -> str:
        """The text from the end of the demonstrations to the reply; checks it against the rendered conversations."""
        (prompt,) = self._rendering.render([[*self._turns, asked]], prompt=True)
        if not prompt.startswith(self._start):
            raise InputError(
                f"{where}the chat template writes the demonstrations in another way before this text; change the "
                f"text, or omit {option('chat')}"
            )
        replies = [self._rendering.safe(reply(self._word(label))) for label in labels]
        answered = self._rendering.render([[*self._turns, asked, turn] for turn in replies])
        for label, turn, text in zip(labels, replies, answered, strict=True):
            if not text.startswith(prompt + self._reply + turn["content"]):
                raise InputError(
                    f"{where}candidate {label!r} is changed by the chat template; use another word, or omit "
                    f"{option('chat')}"
                )
        return prompt[len(self._start) :] + self._reply

    def _check_split(self, start: str) -> None:
        """Raise InputError unless the demonstrations and a query beginning with `start` have the ids of both together.

        Only a tokenizer that does not first split at its special tokens fails this check.
        """
        whole, rest = self._rendering.encode([self._start + start])[0], self.ids([start])[0]
        if whole != [*self.token_ids, *rest]:
            raise _refusal(
                f"{_SPLIT} the demonstrations and a query have other tokens apart than together, around "
                f"{self._separator!r};"
            )


def _common(left: str, right: str) -> str:
    """The longest common start of two texts."""
    return left[: next((n for n, pair in enumerate(zip(left, right, strict=False)) if len(set(pair)) > 1), None)]
