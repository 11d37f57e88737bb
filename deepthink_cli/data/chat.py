"""Demonstrations and a query as turns of a conversation.

The chat template of a model's tokenizer writes the turns (`model/chat.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, with_config

from deepthink_cli.data.template import Template
from deepthink_cli.errors import InputError

Turn = dict[str, str]  # `role` and `content`, as transformers' apply_chat_template takes them


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Chat:
    """The form of prompts as conversations: an optional system message, and the digest of the chat template.

    `template_sha256` is empty until demonstrations are tokenised. Raises InputError for a system message that is not
    valid Unicode.
    """

    system: str | None = None
    template_sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""

    def __post_init__(self) -> None:
        try:
            (self.system or "").encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError.of("system", ascii(self.system), "is not valid Unicode; write it in UTF-8") from error

    def __str__(self) -> str:
        return "as a chat" if self.system is None else f"as a chat, system message {self.system!r}"

    def opening(self) -> list[Turn]:
        """The turns before the demonstrations."""
        return [] if self.system is None else [{"role": "system", "content": self.system}]


def question(template: Template, text: str | Mapping[str, str], written: Callable[[str], str] = str) -> Turn:
    """The user's turn: the template up to the label, without spaces and line breaks at its ends.

    `written` is as in `Template.query`.
    """
    return {"role": "user", "content": template.query(text, written).strip()}


def reply(label: str) -> Turn:
    """The assistant's turn: the label alone."""
    return {"role": "assistant", "content": label.strip()}


def solved(template: Template, examples: Iterable[tuple[str | Mapping[str, str], str]]) -> list[Turn]:
    """Two turns for each demonstration: the user asks, the assistant answers with the label."""
    return [turn for text, label in examples for turn in (question(template, text), reply(label))]
