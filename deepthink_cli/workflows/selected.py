"""The file beside chosen demonstrations that says how they were chosen, `FILE.selection.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter, ValidationError, with_config

from deepthink_cli.data.examples import Example
from deepthink_cli.io.atomic import writing
from deepthink_cli.io.text import json_line
from deepthink_cli.provenance import STRICT, Selected, canonical_json
from deepthink_cli.workflows.events import Note, Tell


@with_config(STRICT)
@dataclass(frozen=True)
class _Beside:
    """The content of the file: how demonstrations were chosen, and a digest of them."""

    examples_sha256: str
    selected: Selected


_CONTENT = TypeAdapter(_Beside)


def file_beside(path: str | Path) -> Path:
    """The file that says how the demonstrations in `path` were chosen."""
    return Path(f"{path}.selection.json")


def write_selected(path: str | Path, selected: Selected, examples: Sequence[Example]) -> None:
    """Write the file beside `path`, atomically."""
    with writing(file_beside(path)) as out:
        out.write(json_line(_CONTENT.dump_python(_Beside(_digest(examples), selected))))


def read_selected(path: str, examples: Sequence[Example], tell: Tell) -> Selected | None:
    """How the demonstrations in `path` were chosen; None if there is no file beside it, or it does not describe them.

    The latter is reported: the demonstrations were changed, or are read with other fields.
    """
    beside = file_beside(path)
    if not beside.is_file():
        return None
    try:
        content = _CONTENT.validate_json(beside.read_bytes())
    except (OSError, ValidationError):
        tell(Note(f"{beside}: cannot be read; how the demonstrations were chosen is not recorded"))
        return None
    if content.examples_sha256 != _digest(examples):
        text = f"{path}: not the demonstrations that {beside.name} describes (changed, or read with another template)"
        tell(Note(f"{text}; how they were chosen is not recorded"))
        return None
    return content.selected


def _digest(examples: Sequence[Example]) -> str:
    """The digest of texts and labels, in order."""
    return sha256(canonical_json([[example.text, example.label] for example in examples]).encode()).hexdigest()
