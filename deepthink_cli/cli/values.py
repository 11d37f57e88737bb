"""Parse the texts of --template, --labels and --separator."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError, Problems

_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}


def unescaped(text: str) -> str:
    r"""Replace \n, \t, \r and \\ as in a Python string."""
    return re.sub(r"\\[ntr\\]", lambda match: _ESCAPES[match[0]], text)


def pattern(template: str | None) -> str | None:
    """The template from --template: its text, or the content of a file without the final line break."""
    if template is None:
        return None
    _check_text(template, "--template")
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


def _check_text(text: str, option: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{option} {text!a}: holds bytes that are not UTF-8; write it in UTF-8") from error


def label_list(labels: str | None) -> list[str] | None:
    """Label words from `a,b,c`, or from a JSON list if a word contains a comma."""
    if labels is None:
        return None
    _check_text(labels, "--labels")
    words: Any = labels.split(",")
    if labels.lstrip().startswith("["):
        try:
            words = json.loads(labels)
        except (ValueError, RecursionError) as error:
            raise InputError(f"--labels {labels}: not a JSON list; write a,b,c") from error
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise InputError(f"--labels {labels}: a label word is empty; write a,b,c")
    if len(words) < 2:
        raise InputError(f"--labels {labels}: one label only; name at least two")
    return [word.strip() for word in words]


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
            raise InputError(f"--{name.replace('_', '-')} {value}: the task has its own; omit it, or write a task file")
