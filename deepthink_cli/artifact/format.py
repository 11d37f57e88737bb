"""The memory file: read, checked and hashed without torch (docs/artifact.md).

A safetensors file is eight bytes with the header's length, the header in JSON, then the tensors'
bytes (https://github.com/huggingface/safetensors#format). Only the canonical form is accepted: the one that
`think` writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepthink_cli.artifact.layout import PARTS, TensorEntry, check_layout, in_file_order, layers_of, tensor_name
from deepthink_cli.artifact.metadata import Metadata, as_json, parse_metadata
from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.io.text import canonical_json
from deepthink_cli.provenance import Provenance

KEY = "deepthink"
MAX_HEADER = 16 * 2**20  # bytes; safetensors needs 25 s and 2 GB for a header of a million tensors
_ALIGNED = 8  # the header is padded with spaces to a multiple of this many bytes


@dataclass(frozen=True)
class Header:
    """The header of an artifact: its metadata and tensor list; `start` is the offset of the tensors' bytes."""

    path: str
    metadata: Metadata
    tensors: dict[str, TensorEntry]
    start: int
    size: int

    @property
    def layers(self) -> int:
        """Number of layers with keys and values."""
        return layers_of(self.tensors)

    def shape(self, layer: int, part: str) -> tuple[int, int, int]:
        """(heads, L, size) of a layer's keys or values as they are used, whatever form the file stores them in."""
        heads, _, size = self.tensors[tensor_name(self.metadata.kept[-1], layer, part)].shape
        return heads, len(self.metadata.demonstrations.token_ids), size


@dataclass(frozen=True)
class Artifact:
    """A verified memory file: its header, and the verified bytes of the requested iterations."""

    header: Header
    iterations: tuple[int, ...]
    tensors: Mapping[str, bytearray]


def read_header(path: str | Path) -> Header:
    """Read and check the header of a memory file, without its tensors and without torch.

    Raises InputError if the file is missing, is not a deepthink memory, or its tensors are not
    exactly those that the metadata describe.
    """
    source = Path(path)
    if not os.path.exists(source):
        raise InputError(f"{path}: no such file; make a memory with: deepthink think DEMOS -o {path}")
    if not os.path.isfile(source):
        raise InputError(f"{path}: not a regular file; name a memory written by deepthink think")
    try:
        raw, text, size = _raw_header(source)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    metadata = raw.pop("__metadata__", None)
    if not isinstance(metadata, dict) or list(metadata) != [KEY] or not isinstance(metadata[KEY], str):
        raise _foreign(path, "a safetensors file without deepthink metadata")
    parsed = parse_metadata(metadata[KEY], str(path))
    header = Header(str(path), parsed, _entries(raw, path), 8 + len(text), size)
    _check_layout(header)
    if text != _header_text(header):
        raise InputError(
            f"{path}: damaged: its header is not as deepthink think writes it; run it again, or copy the file again"
        )
    return header


def kept_iteration(header: Header, choice: int | str) -> int:
    """The number of the chosen iteration; raises InputError if the file does not contain it."""
    kept = list(map(str, header.metadata.kept))
    if str(choice) not in kept:
        raise InputError.of(
            "iteration",
            choice,
            f"{header.path} keeps {', '.join(kept)}; name one of them, last or all, or run deepthink think again with "
            f"{option('keep')}",
        )
    return int(choice)


def one_iteration(header: Header, choice: str) -> int:
    """The number of the chosen iteration, or of the last one; raises InputError for all, or one that was not kept."""
    if choice == "all":
        raise InputError.of("iteration", choice, "one iteration is needed; give its number, or last")
    return header.metadata.kept[-1] if choice == "last" else kept_iteration(header, choice)


def read_artifact(header: Header, iterations: Collection[int] = ()) -> Artifact:
    """Read every byte of the file once, compare the digest, and keep the tensors of some iterations.

    Raises InputError if the bytes do not match the digest or an iteration was not kept, and
    DeepThinkError if the tensors do not fit into memory.
    """
    for iteration in iterations:
        kept_iteration(header, iteration)
    wanted = {name for name in header.tensors if int(name.split(".")[1]) in iterations}
    kept: dict[str, bytearray] = {}
    try:
        with open(header.path, "rb", buffering=0) as file:

            def tensor_bytes(name: str) -> bytearray:
                entry = header.tensors[name]
                buffer = bytearray(entry.end - entry.begin)
                file.seek(header.start + entry.begin)
                _fill(file.readinto, memoryview(buffer))
                if name in wanted:
                    kept[name] = buffer
                return buffer

            described = {name: (entry.dtype, entry.shape) for name, entry in header.tensors.items()}
            digest = content_digest(header.metadata, described, tensor_bytes)
    except OSError as error:
        raise InputError(f"{header.path}: cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise DeepThinkError(
            f"{header.path}: {header.size} bytes do not fit into memory; keep fewer iterations"
        ) from error
    if digest != header.metadata.sha256:
        raise InputError(
            f"{header.path}: damaged: its bytes do not match its digest; run deepthink think again, or copy the file "
            "again"
        )
    return Artifact(header, tuple(iterations), kept)


def provenance_of(header: Header) -> Provenance:
    """Where a file's memory comes from; raises InputError, naming the file, if its update rule is unknown here."""
    try:
        return header.metadata.provenance()
    except InputError as error:
        raise InputError(f"{header.path}: {error}") from error


def verify(header: Header) -> None:
    """Raise InputError unless the file's bytes match its digest."""
    read_artifact(header)


def content_digest(
    metadata: Metadata, tensors: Mapping[str, tuple[str, tuple[int, ...]]], read: Callable[[str], bytes | bytearray]
) -> str:
    """The digest of metadata (without `sha256`) and tensors {name: (dtype, shape)}; `read(name)` returns bytes."""
    total = hashlib.sha256(metadata_json(replace(metadata, sha256="")).encode())
    for name in sorted(tensors):
        dtype, shape = tensors[name]
        total.update(canonical_json([name, dtype, list(shape)]).encode())
        total.update(read(name))
    return total.hexdigest()


def metadata_json(metadata: Metadata) -> str:
    """The metadata as stored in the artifact: canonical JSON."""
    return canonical_json(as_json(metadata))


def summary(header: Header) -> dict[str, Any]:
    """The metadata and sizes as one JSON-ready object, without token ids and the numbers of centroids."""
    fields = as_json(header.metadata)
    for centroids in fields.get("calibrated", {}).get("centroids", {}).values():
        centroids["means"] = list(centroids["means"])
    fields["demonstrations"]["tokens"] = len(fields["demonstrations"].pop("token_ids"))
    shape = {part: list(header.shape(0, part)) for part in PARTS}
    return {"file": header.path, "bytes": header.size, "layers": header.layers, "shape": shape, **fields}


def _raw_header(source: Path) -> tuple[dict[str, Any], bytes, int]:
    """The header as parsed JSON, its raw bytes, and the file's size."""
    with open(source, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(MAX_HEADER, size - 8):
            raise _foreign(source, "not a safetensors file")
        text = file.read(length)
    try:
        raw = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _foreign(source, "not a safetensors file") from error
    if not isinstance(raw, dict):
        raise _foreign(source, "not a safetensors file")
    return raw, text, size


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is duplicated")
    return dict(pairs)


def _foreign(path: object, reason: str) -> InputError:
    return InputError(f"{path}: not a deepthink memory ({reason}); name a file written by deepthink think")


def _entries(raw: dict[str, Any], path: str | Path) -> dict[str, TensorEntry]:
    entries = {}
    for name, entry in raw.items():
        try:
            begin, end = map(int, entry["data_offsets"])
            shape = tuple(int(size) for size in entry["shape"])
            entries[name] = TensorEntry(str(entry["dtype"]), shape, begin, end)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: damaged: tensor {name!r} is not described as safetensors does") from error
    return entries


def _header_text(header: Header) -> bytes:
    """The canonical header of a file with these metadata and tensors."""
    listed = {
        name: {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": (entry.begin, entry.end)}
        for name, entry in in_file_order(header.tensors)
    }
    raw = {"__metadata__": {KEY: metadata_json(header.metadata)}, **listed}
    text = json.dumps(raw, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % _ALIGNED)


def _fill(readinto: Callable[[memoryview], int | None], buffer: memoryview) -> None:
    """Read until the buffer is full or the file ends: one call reads at most 2 GiB."""
    while len(buffer) and (count := readinto(buffer)):
        buffer = buffer[count:]


def _check_layout(header: Header) -> None:
    """Raise InputError unless the tensors are those that the metadata describe, and fill the file."""
    metadata = header.metadata
    length = len(metadata.demonstrations.token_ids)
    place = check_layout(header.path, header.tensors, metadata.kept, length, metadata.quantized)
    if header.start + place != header.size:
        raise InputError(f"{header.path}: damaged: {header.size} bytes, {header.start + place} expected; copy it again")
