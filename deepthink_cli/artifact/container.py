"""The safetensors files of this program, of every kind: one text of metadata, a canonical header and a digest.

A safetensors file is eight bytes with the header's length, the header in JSON, then the tensors' bytes
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.io.text import canonical_json, file_meant
from deepthink_cli.options import Options
from deepthink_cli.registry import Registry, instance_of

if TYPE_CHECKING:  # files are described without torch
    from deepthink_cli.artifact.metadata import StoredDemonstrations

KEY = "deepthink"  # the key of a memory's metadata; `OPENERS` has the keys of other files
MAX_HEADER = 16 * 2**20  # bytes; safetensors needs many seconds and gigabytes for a header of a million tensors
_ALIGNED = 8  # the header is padded with spaces to a multiple of this many bytes
BYTES = {"F32": 4, "BF16": 2, "U8": 1}  # of a number, by its dtype in the header


@dataclass(frozen=True)
class Described:
    """The facts that `inspect` shows: `values` for `--json`; facts by short names, demonstrations and the digest."""

    values: Mapping[str, Any]
    facts: Mapping[str, str]
    demonstrations: StoredDemonstrations
    sha256: str


@dataclass(frozen=True)
class Opener:
    """A kind of file from which a model makes a memory, for `predict` and `eval`.

    `open` reads a file, checks every byte of it, and returns an `OpenedMemory` whose `read_by` makes the memory. Its
    arguments are the path, the iterations as in `open_memory`, and the kind's own options, or None. `describe` reads a
    file without torch, and all its bytes if the second argument, `verify`, is true. Each is a function, or the place of
    one (`module:function`), and raises InputError for a damaged file. `holds` is the content of a file, in the plural.
    """

    open: Callable[[str, str, Any], Any] | str
    describe: Callable[[str, bool], Described] | str
    holds: str
    summary: str
    source: str
    options: type[Options] | None = None

    @property
    def file(self) -> str:
        """The name of a file of this kind in messages."""
        return f"a file of {self.holds}"


OPENERS: Registry[Opener] = Registry("openers", {}, instance_of(Opener))  # by the key of their metadata


@dataclass(frozen=True)
class TensorEntry:
    """One tensor as the header lists it: dtype, shape and the offsets of its bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Container:
    """The header of a file: its bytes, the key and the text of its metadata, its tensors; `size` is the file's size."""

    path: str
    header: bytes
    key: str
    metadata: str
    tensors: dict[str, TensorEntry]
    size: int

    @property
    def start(self) -> int:
        """The offset of the tensors' bytes."""
        return 8 + len(self.header)

    def check_canonical(self, metadata: str, command: str) -> None:
        """Raise InputError unless `command` writes the same header for these metadata, a canonical text."""
        listed = {
            name: {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": (entry.begin, entry.end)}
            for name, entry in in_file_order(self.tensors)
        }
        header = {"__metadata__": {self.key: metadata}, **listed}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if self.header != text + b" " * (-len(text) % _ALIGNED):
            raise InputError(
                f"{self.path}: damaged: its header is not as deepthink {command} writes it; run it again, or copy the "
                "file again"
            )


def read_container(path: str | Path) -> Container:
    """Read the header of a file and check its form, without its tensors.

    Raises InputError if the file is missing, or is not a file of this program.
    """
    source = Path(path)
    if not os.path.exists(source):
        make = file_meant(path, f"make a memory with: deepthink think DEMOS -o {path}")
        raise InputError(f"{path}: no such file; {make}")
    if not os.path.isfile(source):
        raise InputError(f"{path}: not a regular file; name a memory written by deepthink think")
    try:
        with open(source, "rb") as file:
            size, prefix = os.fstat(file.fileno()).st_size, file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise _foreign(source, "not a safetensors file")
            text = file.read(length)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        raw = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _foreign(source, "not a safetensors file") from error
    if not isinstance(raw, dict):
        raise _foreign(source, "not a safetensors file")
    metadata = raw.pop("__metadata__", None)
    keys = list(metadata) if isinstance(metadata, dict) else []
    known = keys == [KEY] or (len(keys) == 1 and keys[0] in OPENERS)
    if not known or not isinstance(metadata[keys[0]], str):
        raise _foreign(path, "a safetensors file without deepthink metadata")
    entries = {}
    for name, entry in raw.items():
        try:
            begin, end = map(int, entry["data_offsets"])
            shape = tuple(int(extent) for extent in entry["shape"])
            entries[name] = TensorEntry(str(entry["dtype"]), shape, begin, end)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: damaged: tensor {name!r} is not described as safetensors does") from error
    return Container(str(path), text, keys[0], metadata[keys[0]], entries, size)


def opener_of(path: str | Path) -> Opener | None:
    """The opener of a file, by its metadata; None for a memory. Raises InputError for a file of other programs."""
    key = read_container(path).key
    return None if key == KEY else OPENERS[key]


def in_file_order(tensors: Mapping[str, TensorEntry]) -> list[tuple[str, TensorEntry]]:
    """The tensors in the order of their bytes: wider dtypes first, so that all are aligned; then by name."""
    return sorted(tensors.items(), key=lambda item: (-BYTES.get(item[1].dtype, 0), item[0]))


def digest(
    unsigned: str, tensors: Mapping[str, tuple[str, tuple[int, ...]]], read: Callable[[str], bytes | bytearray]
) -> str:
    """The digest of metadata (without digest) and tensors {name: (dtype, shape)}; `read(name)` returns bytes."""
    total = hashlib.sha256(unsigned.encode())
    for name in sorted(tensors):
        dtype, shape = tensors[name]
        total.update(canonical_json([name, dtype, list(shape)]).encode())
        total.update(read(name))
    return total.hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is duplicated")
    return dict(pairs)


def _foreign(path: object, reason: str) -> InputError:
    return InputError(f"{path}: not a deepthink memory ({reason}); name a file written by deepthink think")
