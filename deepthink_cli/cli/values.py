"""Parse the texts of --template and --separator; refuse options that have no meaning beside the others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import typer

from deepthink_cli.errors import InputError
from deepthink_cli.meaning import PLACES, check_meaning

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


def check_given(context: typer.Context, command: str) -> None:
    """Raise InputError for every option that was given, wherever, and has no meaning beside the others."""
    sources = {str(each.name): context.get_parameter_source(str(each.name)) for each in context.command.params}
    named = {name: source.name for name, source in sources.items() if source is not None}
    typed = [name for name, source in named.items() if source == "COMMANDLINE"]
    other = [name for name, source in named.items() if source in ("ENVIRONMENT", "DEFAULT_MAP")]
    check_meaning(command, [*typed, *(name for name in other if name not in PLACES)], context.params)
