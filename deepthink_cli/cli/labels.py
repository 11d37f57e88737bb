"""Parse --labels: a line of CSV, a file with one label a line, or one label for each time that the option is given."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepthink_cli.data.formats.lines import BOM, decoded
from deepthink_cli.errors import InputError, Problems

FILE = "@"  # begins the name of a file of labels
_WAY_OUT = "write a,b,c"


def label_list(typed: Sequence[str] | None) -> list[str] | None:
    """Label words from the values of --labels, without white space at their ends; None if it was not given.

    Given once, the value is a line of CSV, a JSON list, or `@FILE`: the labels of a file, one a line. Given several
    times, each value is one label as it is. Raises InputError for fewer than two labels, an empty one and a file that
    cannot be read, with its lines that are wrong.
    """
    if not typed:
        return None
    option = f"--labels {', '.join(typed)}"
    try:
        "".join(typed).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{ascii(option)[1:-1]}: holds bytes that are not UTF-8; write it in UTF-8") from error
    (first, *others) = typed
    if (path := labels_file(typed)) is not None:
        return _of_file(path)
    words = [*typed] if others else _of_json(first) if first.lstrip().startswith("[") else _of_csv(first)
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise InputError(f"{option}: a label word is empty; {_WAY_OUT}")
    if len(words) < 2:
        raise InputError(f"{option}: one label only; name at least two")
    return [word.strip() for word in words]


def labels_file(typed: Sequence[str] | None) -> str | None:
    """The file that --labels names, if it names one; raises InputError for a file beside other labels."""
    files = [value for value in typed or () if value.startswith(FILE)]
    if files and typed is not None and len(typed) > 1:
        raise InputError(
            f"--labels {files[0]}: a file of labels cannot be combined with other labels; write all labels into it, "
            f"""or a label that begins with @ in quotation marks, as in '"{files[0]}",other'"""
        )
    return os.path.expanduser(files[0].removeprefix(FILE)) if files else None


def labels_option(labels: Sequence[str]) -> str:
    """The value of --labels that names these labels."""
    quoted = any(label.startswith((FILE, "[")) for label in labels)
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="").writerow(labels)
    return text.getvalue()


def _of_json(text: str) -> list[Any]:
    try:
        words: list[Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"--labels {text}: not a JSON list; {_WAY_OUT}") from error
    return words


def _of_csv(text: str) -> list[str]:
    if not text:
        return [""]
    try:
        (words,) = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise InputError(
            f"--labels {text}: not a line of CSV; {_WAY_OUT}, with quotation marks around a label that has a comma"
        ) from error
    return words


def _of_file(path: str) -> list[str]:
    option = f"--labels {FILE}{path}"
    try:
        lines = Path(path).read_bytes().removeprefix(BOM).split(b"\n")
    except FileNotFoundError as error:
        raise InputError(f"{option}: no such file; give a file with one label a line") from error
    except OSError as error:
        raise InputError(f"{option}: cannot be read: {error.strerror or error}") from error
    problems, first = Problems(), dict[str, str]()
    for number, line in enumerate(lines, start=1):
        with problems.collected():
            where = f"{path}:{number}"
            label = decoded(line, where).strip()
            if label in first:
                raise InputError(f"{where}: {label!r} is duplicated, first at {first[label]}; keep one")
            if label:
                first[label] = where
    problems.raise_any()
    if len(first) < 2:
        raise InputError(f"{option}: {len(first)} labels; write at least two, one a line")
    return list(first)
