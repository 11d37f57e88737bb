"""Read a YAML or TOML file as values, with the line of each value.

No file may set options that let other people's code run: these are flags of the command line only. Libraries know fewer
lines: ruamel.yaml 0.19 accepts 17 of the 62 files that are refused here (tests/corpus) and names no line for 14;
tomlkit 0.15 keeps no lines of values.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError

# A limit far above any real file: nested aliases can expand to more values than fit into memory.
_MAX_VALUES = 100_000
_DEEPEST = 50
# Above them, Python refuses to write a number, which hexadecimal digits and those of base 60 can state.
_LONGEST_NUMBER, _MAX_BITS = 100, 400
_NUMBER = f"a number has more than {_LONGEST_NUMBER} digits; shorten it, or write a string in quotation marks"

_YAML = "tag:yaml.org,2002:"
_SCALARS = {_YAML + kind for kind in ("str", "int", "float", "bool", "null", "timestamp")}

Keys = tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """The values of a file, and the lines of their keys."""

    path: str
    values: Any
    lines: dict[Keys, int]

    def has(self, *keys: object) -> bool:
        """Whether the document has a value under `keys`."""
        return tuple(map(str, keys)) in self.lines

    def where(self, *keys: object) -> str:
        """`task.yaml:7`: the line of the value under `keys`, or of the nearest enclosing value."""
        place = tuple(map(str, keys))
        while place not in self.lines:
            place = place[:-1]
        return f"{self.path}:{self.lines[place]}"


def read_document(path: Path) -> Document:
    """Read a .toml, .yaml or .yml file.

    A YAML alias is read as a copy of its value. Raises InputError with `file:line` for text that is not UTF-8 or
    not of the format, a duplicated key, a tag, a NUL character, and values nested too deeply.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise InputError(f"{path}:{line}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8") from error
    return _toml(str(path), text) if path.suffix == ".toml" else _yaml(str(path), text)


def _yaml(path: str, text: str) -> Document:
    import yaml

    loader = None
    try:
        loader = yaml.SafeLoader(text)  # not that of libyaml, whose recursion has no limit
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        where = f"{path}:{_line(text, error.position)}"
        raise InputError(f"{where}: not YAML: holds the character U+{ord(text[error.position]):04X}") from error
    except yaml.MarkedYAMLError as error:
        line = _line(text, error.problem_mark.index)
        start = _line(text, error.context_mark.index) if error.context_mark else line
        context = f"{error.context}{f' in line {start}' if start != line else ''}: " if error.context else ""
        raise InputError(f"{path}:{line}: not YAML: {context}{error.problem}") from error
    except (ValueError, OverflowError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "a number is out of range"
        raise InputError(f"{path}:{_line(text, loader.index if loader else 0)}: not YAML: {reason}") from error
    builder = _Builder(path, text, loader)
    return Document(path, None if root is None else builder.value(root, ()), builder.lines or {(): 1})


class _Builder:
    """Builds values from a YAML file's nodes, and records their lines."""

    def __init__(self, path: str, text: str, loader: Any) -> None:
        self.path, self.loader = path, loader
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[Keys, int] = {}
        self.count = self.depth = 0

    def value(self, node: Any, keys: Keys) -> Any:
        self.count += 1
        self.depth += 1
        self.lines.setdefault(keys, self.line(node))
        if self.count > _MAX_VALUES:
            raise self.mistake(node, f"aliases repeat it to more than {_MAX_VALUES:,} values; write fewer of them")
        if self.depth > _DEEPEST:
            raise self.mistake(node, "nested too deeply")
        value: Any
        if node.id == "mapping" and node.tag == _YAML + "map":
            value = self.mapping(node, keys)
        elif node.id == "sequence" and node.tag == _YAML + "seq":
            value = [self.value(item, (*keys, str(place))) for place, item in enumerate(node.value)]
        else:
            value = self.scalar(node)
        self.depth -= 1
        return value

    def mapping(self, node: Any, keys: Keys) -> dict[Any, Any]:
        written: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _YAML + "merge":
                merged = {**self.merged(value_node, keys), **merged}
                continue
            if key_node.id != "scalar":
                raise self.mistake(key_node, "a key must be a string")
            key = self.scalar(key_node)
            if key in written:
                raise self.mistake(key_node, f"{key!r} is duplicated; keep one")
            self.lines[*keys, str(key)] = self.line(key_node)
            written[key] = self.value(value_node, (*keys, str(key)))
        return {**merged, **written}

    def merged(self, node: Any, keys: Keys) -> dict[Any, Any]:
        """The fields that `<<` adds: a mapping, or several, of which the first takes precedence."""
        fields: dict[Any, Any] = {}
        for mapping in node.value if node.id == "sequence" else [node]:
            value = self.value(mapping, keys)
            if not isinstance(value, dict):
                raise self.mistake(mapping, "<< must be the alias of a mapping")
            fields = {**value, **fields}
        return fields

    def scalar(self, node: Any) -> Any:
        if node.id != "scalar" or node.tag not in _SCALARS:
            raise self.mistake(node, f"the tag {node.tag} is not supported; write a string in quotation marks")
        kind = node.tag.removeprefix(_YAML)
        if kind in ("int", "float") and len(node.value) > _LONGEST_NUMBER:
            raise self.mistake(node, _NUMBER)
        try:
            value = self.loader.construct_object(node)
        except (ValueError, OverflowError, LookupError, AttributeError) as error:  # each type raises different errors
            raise self.mistake(
                node, f"not a valid {kind}: {node.value[:40]!r}; write a string in quotation marks"
            ) from error
        if reason := _unfit(value):
            raise self.mistake(node, reason)
        return value

    def line(self, node: Any) -> int:
        return bisect_left(self.breaks, node.start_mark.index) + 1

    def mistake(self, node: Any, reason: str) -> InputError:
        return InputError(f"{self.path}:{self.line(node)}: {reason}")


def _line(text: str, place: int) -> int:
    # PyYAML also counts U+2028 and U+0085 as line breaks; editors do not.
    return text.count("\n", 0, place) + 1


def _unfit(value: Any) -> str | None:
    """The fault of a string (possibly from an escape sequence) or a number; None if it is valid."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return _NUMBER
    if not isinstance(value, str):
        return None
    text = value
    if "\0" in text:
        return "holds a NUL character; remove it"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"holds the lone surrogate {text[error.start]!a}; remove it"
    return None


def _toml(path: str, text: str) -> Document:
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason, _, place = str(error).partition(" (at ")
        if match := re.match(r"line (\d+)", place):
            where = f"{path}:{match[1]}"
        elif place:  # the end of the document
            where = f"{path}:{_line(text.rstrip(), len(text))}"
        else:
            where = path
            reason = "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise InputError(f"{where}: not TOML: {reason}") from error
    document = Document(path, values, {(): 1, **{(key,): _toml_line(text, key) for key in values}})
    for key, value in values.items():
        for item in (key, *_scalars(value)):
            if flaw := _unfit(item):
                raise InputError(f"{document.where(key)}: {flaw}")
    return document


def _scalars(value: Any) -> Iterator[Any]:
    """The keys and values in a value, at any depth."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _scalars(item)
    if not isinstance(value, list):
        yield value


def _toml_line(text: str, key: str) -> int:
    """The first line that begins with a top-level key, or names its table."""
    found = re.search(rf"""^[\s\["']*{re.escape(key)}["']?\s*[=.\]]""", text, re.MULTILINE)
    return _line(text, found.end()) if found else 1


RUN_CODE = frozenset({"trust_remote_code", "run_code"})


def check_allows_no_code(values: Any, where: Callable[..., str], options: Collection[str] = RUN_CODE) -> None:
    """Check the values of a file, at any depth; `where` gives the line of the value under some keys.

    `options` let code run. Raises InputError for each of them, unless its value is false.
    """
    reason = "a file must not let code run; omit it: only an option on the command line can"
    if problems := [f"{where(*keys)}: {keys[-1]}: {reason}" for keys in _allowing(values, options)]:
        raise InputError(*problems)


def _allowing(values: Any, options: Collection[str]) -> Iterator[tuple[Any, ...]]:
    """The keys of every one of these options in nested values, unless its value is false."""
    items: Any = (
        values.items() if isinstance(values, Mapping) else enumerate(values if isinstance(values, list) else ())
    )
    for key, value in items:
        if isinstance(key, str) and key.replace("-", "_") in options and value is not False:
            yield (key,)
        yield from ((key, *keys) for keys in _allowing(value, options))
