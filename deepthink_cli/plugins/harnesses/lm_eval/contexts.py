"""The demonstrations in the contexts of lm-evaluation-harness, plain or as a conversation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os.path import commonprefix
from typing import Any

from deepthink_cli.errors import InputError

NO_RESPONSE_CACHE = (
    "--use_cache: its keys are the prompt alone, without T and eta, so that a run would silently read the scores of "
    "another one; omit it"
)


class SplitContext(str):
    """A prompt whose query begins at character `start`; equal to the same text without it.

    `where` names the task and its row in messages.
    """

    start: int
    where: tuple[str, int | None]

    def __new__(cls, text: str, start: int = 0, where: tuple[str, int | None] = ("", None)) -> SplitContext:
        """The text with its split."""
        prompt = super().__new__(cls, text)
        prompt.start, prompt.where = start, where
        return prompt

    @property
    def context(self) -> str:
        """What precedes the query."""
        return self[: self.start]

    @property
    def place(self) -> str:
        """The task and its row, as messages name them."""
        task, row = self.where
        return f"task {task}" if row is None else f"task {task}, row {row}"


Turns = Sequence[Mapping[str, str]]
_PROBES = ("A probe.", "0 is another.")  # two texts without a common start


def before_query(turns: Turns) -> Turns:
    """The turns before the last one of the user, which is the query: system prompt and demonstrations."""
    asked = [number for number, turn in enumerate(turns) if turn["role"] == "user"]
    return turns[: asked[-1]] if asked else turns[:0]


def split_at_query(turns: Turns, written: str, write: Callable[[Turns], str]) -> str:
    """A written conversation, split before the text of its last user turn; unsplit if the template moves that.

    `write` applies the chat template. Without earlier turns, nothing precedes the query.
    """
    before = before_query(turns)
    if not before:
        return SplitContext(written)
    probed = [write([*before, {"role": "user", "content": probe}]) for probe in _PROBES]
    shared = commonprefix(probed)  # noqa: RUF071  of characters
    return SplitContext(written, len(shared)) if shared and written.startswith(shared) else written


def split_in_turn(content: str, query: str, written: str) -> str:
    """A written conversation whose one user turn ends with the query, split before it; unsplit if it is not found.

    Templates may strip the white space around a turn.
    """
    stripped = content.strip()
    place = written.rfind(stripped)
    if not stripped or place < 0 or not content.endswith(query):
        return written
    skipped = len(content) - len(content.lstrip())
    return SplitContext(written, place + max(0, len(content) - len(query) - skipped))


def write(tokenizer: Any, turns: Turns, prompt: bool, thinking: bool | None) -> str:
    """A conversation by the tokenizer's chat template, as the harness's own model writes it.

    With `prompt` up to where the reply begins; otherwise the last turn is continued. A system prompt is left out for
    templates that refuse one. Raises InputError for a tokenizer without a template, and for one that refuses the turns.
    """
    from jinja2.exceptions import TemplateError

    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            "--apply_chat_template: the tokenizer has no chat template; use a model that was trained on "
            "conversations, or omit it"
        )
    options: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
    options |= {"tokenize": False, "add_generation_prompt": prompt, "continue_final_message": not prompt}
    try:
        return str(tokenizer.apply_chat_template(list(turns), **options))
    except TemplateError:
        kept = [turn for turn in turns if turn["role"] != "system"]
    try:
        return str(tokenizer.apply_chat_template(kept, **options))
    except TemplateError as error:
        raise InputError(f"--apply_chat_template: the chat template refuses the conversation: {error}") from error
