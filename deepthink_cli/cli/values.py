"""Values of options that are read as more than one word (labels, templates, separators), and the files options read."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

import typer

from deepthink_cli.cli.grouped import Given
from deepthink_cli.cli.sources import came_from
from deepthink_cli.data.formats.lines import BOM, decoded
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.decoding import Decoding
from deepthink_cli.errors import InputError, Problem, Problems
from deepthink_cli.meaning import SHARED, check_meaning

FILE = "@"  # begins the name of a file of labels
_HINT = "write a,b,c"


def label_words(typed: str | None) -> tuple[dict[str, str], list[str] | None]:
    """The word of each value in `0=negative,1=positive`, and the different words, in order; None without --labels.

    The value of --labels is a line of CSV, or `@FILE`: the labels of a file, one a line. Values of a file, and values
    of which one has no `=`, are label words as they are. Raises InputError for an empty label, and for a file that
    cannot be read, with its lines that are wrong.
    """
    if typed is None:
        return {}, None
    words = _words(typed)
    if typed.startswith(FILE) or not all("=" in each for each in words):
        return {}, words
    pairs = [tuple(map(str.strip, each.split("=", 1))) for each in words]
    if not all(map(all, pairs)) or len({pair[0] for pair in pairs}) < len(pairs):
        raise InputError.of("labels", typed, "give VALUE=LABEL, each value once, as in 0=negative,1=positive")
    return {pair[0]: pair[1] for pair in pairs}, list(dict.fromkeys(pair[1] for pair in pairs))


def _words(typed: str) -> list[str]:
    """The words of --labels."""
    try:
        typed.encode("utf-8")
    except UnicodeEncodeError as error:
        written = ascii(typed)[1:-1]
        raise InputError.of("labels", written, "holds bytes that are not UTF-8; write it in UTF-8") from error
    if (path := labels_file(typed)) is not None:
        return _of_file(path)
    try:
        (words,) = csv.reader(io.StringIO(typed or '""', newline=""), skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        reason = f"not a line of CSV; {_HINT}, with quotation marks around a label that has a comma"
        raise InputError.of("labels", typed, reason) from error
    if not all(map(str.strip, words)):
        raise InputError.of("labels", typed, f"a label word is empty; {_HINT}")
    return [word.strip() for word in words]


def labels_file(typed: str | None) -> str | None:
    """The file that --labels names, if any."""
    return os.path.expanduser(typed.removeprefix(FILE)) if typed is not None and typed.startswith(FILE) else None


def _of_file(path: str) -> list[str]:
    named = Problem.of("labels", f"{FILE}{path}")
    try:
        lines = Path(path).read_bytes().removeprefix(BOM).split(b"\n")
    except FileNotFoundError as error:
        raise InputError(named.because("no such file; give a file with one label a line")) from error
    except OSError as error:
        raise InputError(named.because(f"cannot be read: {error.strerror or error}")) from error
    problems, first = Problems(), dict[str, str]()
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        label = (problems.tried(decoded, line, where) or "").strip()
        if label in first:
            problems.add(f"{where}: {label!r} is duplicated, first at {first[label]}; keep one")
        elif label:
            first[label] = where
    problems.raise_any()
    if len(first) < 2:
        raise InputError(named.because(f"{len(first)} labels; write at least two, one a line"))
    return list(first)


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
        raise InputError.of("template", ascii(template), "holds bytes that are not UTF-8; write it in UTF-8") from error
    if "{" in template:
        return unescaped(template)
    if not os.path.isfile(template):
        reason = "has no {field} and is not a file; write 'Review: {text}\\nSentiment: {label}'"
        raise InputError.of("template", template, reason)
    try:
        return Path(template).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.of("template", template, "cannot be read as UTF-8 text") from error


def decoding_of(given: Given[Decoding]) -> Decoding:
    """The validated options of generation; raises InputError for each wrong value."""
    stop = None if given.stop is None else tuple(unescaped(text) for text in given.stop if text)
    return given.but(stop=stop).checked()


def check_given(context: typer.Context, command: str) -> None:
    """Raise InputError for every option that was given, wherever, and has no meaning beside the others."""
    sources = {str(each.name): came_from(context, str(each.name)) for each in context.command.params}
    typed = [name for name, source in sources.items() if source == "COMMANDLINE"]
    other = [name for name, source in sources.items() if source in ("ENVIRONMENT", "DEFAULT_MAP")]
    check_meaning(command, [*typed, *(name for name in other if name not in SHARED)], context.params)


PACKAGE = Path(__file__).parent.parent


def read_by(
    *rows: str | Path | None,
    model: str | None = None,
    template: str | None = None,
    labels: str | None = None,
    task: str | Sequence[str] | None = None,
    data_dir: Path | None = None,
    config: Path | None = None,
) -> list[str | Path]:
    """The files and folders that these options read, and the package's own folder; `rows` may be `-`, or a pattern.

    Raises InputError for a wrong task file, and for an unknown task if rows come from `data_dir`.
    """
    from deepthink_cli.tasks.catalogue import find_tasks
    from deepthink_cli.tasks.files import SUFFIXES
    from deepthink_cli.tasks.sources import files_of

    tasks = [task] if isinstance(task, str) else task or ()
    read = [part for each in rows if each is not None for part in RowSource(str(each)).parts or [str(each)]]
    files = [*read, template if template is not None and "{" not in template else None, config]
    own = [name for name in tasks if name.endswith(SUFFIXES)]
    files += [labels_file(labels), *own, *(file for item in find_tasks(own) for file in files_of(item))]
    folders: list[str | Path] = [PACKAGE, *([] if model is None else [os.path.expanduser(model)])]
    if data_dir is not None:
        folders += dict.fromkeys(data_dir / item.folder for item in find_tasks(tasks))
    return [file for file in files if file is not None] + folders
