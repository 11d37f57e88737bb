"""Parse the texts of --template and --separator; options that need --task, or exclude it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from deepthink_cli.errors import InputError, Problems

_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}


def unescaped(text: str) -> str:
    r"""Replace \n, \t, \r and \\ as in a Python string."""
    return re.sub(r"\\[ntr\\]", lambda match: _ESCAPES[match[0]], text)


def pattern(template: str | None) -> str | None:
    """The template from --template: its text, or the content of a file without the final line break."""
    if template is None:
        return None
    try:
        template.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"--template {template!a}: holds bytes that are not UTF-8; write it in UTF-8") from error
    if "{" in template:
        return unescaped(template)
    if not os.path.isfile(template):
        raise InputError(
            f"--template {template}: has no {{field}} and is not a file; "
            "write 'Review: {text}\\nSentiment: {label}'"
        )
    try:
        return Path(template).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--template {template}: cannot be read as UTF-8 text") from error


def only_with_task(task: str | None, **values: object) -> None:
    """Raise InputError for options that have no effect without --task."""
    problems = Problems()
    for name, value in values.items():
        if task is None and value is not None:
            with problems.collected():
                raise InputError(f"--{name.replace('_', '-')} {value}: only with --task NAME")
    problems.raise_any()


def only_without_task(**values: object) -> None:
    """Raise InputError for options of the prompt, which a task defines itself."""
    for name, value in values.items():
        if value is not None:
            shown = ", ".join(value) if isinstance(value, list) else value
            raise InputError(f"--{name.replace('_', '-')} {shown}: the task has its own; omit it, or write a task file")
