"""The memory file: read, checked and hashed without torch (docs/artifact.md).

Only the canonical form, which `think` writes, is accepted.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepthink_cli.artifact.container import BYTES, KEY, OPENERS, TensorEntry, digest, in_file_order, read_container
from deepthink_cli.artifact.metadata import Metadata, as_json, parse_metadata
from deepthink_cli.errors import InputError, option
from deepthink_cli.io.text import canonical_json
from deepthink_cli.provenance import Provenance

PARTS = ("keys", "values")
_NAME = re.compile(r"iteration\.(\d{1,6})\.layer\.(\d{1,6})\.(keys|values)(?:\.(low|scale))?")


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
        return len({match[2] for name in self.tensors if (match := _NAME.fullmatch(name))})

    def shape(self, layer: int, part: str) -> tuple[int, int, int]:
        """(heads, L, size) of a layer's keys or values after reading, whatever the form in the file."""
        heads, _, size = self.tensors[tensor_name(self.metadata.kept[-1], layer, part)].shape
        return heads, len(self.metadata.demonstrations.token_ids), size


@dataclass(frozen=True)
class Artifact:
    """A verified memory file: its header, and the verified bytes of the requested iterations."""

    header: Header
    iterations: tuple[int, ...]
    tensors: Mapping[str, bytearray]


def tensor_name(iteration: int, layer: int, part: str) -> str:
    """`iteration.{t}.layer.{l}.keys` or `.values`; beside it `.low` and `.scale` of a quantized tensor."""
    return f"iteration.{iteration}.layer.{layer}.{part}"


def read_header(path: str | Path) -> Header:
    """Read and check the header of a memory file, without its tensors and without torch.

    Raises InputError if the file is missing, is not a deepthink memory, or has other tensors than its metadata
    describe.
    """
    container = read_container(path)
    if container.key != KEY:
        raise InputError(
            f"{path}: holds {OPENERS[container.key].holds}, not a memory: predict and eval use them (without workers "
            "and servers), and inspect shows them; make a memory with deepthink think"
        )
    metadata = parse_metadata(container.metadata, str(path))
    header = Header(str(path), metadata, container.tensors, container.start, container.size)
    _check_layout(header)
    container.check_canonical(metadata_json(metadata), "think")
    return header


def is_memory(path: str | Path) -> bool:
    """Whether a file is a memory, which is never part of a model or a task."""
    with suppress(InputError):
        read_header(path)
        return True
    return False


def check_replaceable(path: str | Path) -> None:
    """Raise InputError for an existing file that a memory must not replace: it is none."""
    if os.path.exists(path) and os.path.getsize(path) and not is_memory(path):
        raise InputError.of("output", path, "exists, and is not a memory; remove it, or name another file")


def kept_iterations(header: Header, choice: int | str) -> list[int]:
    """The kept iterations that `choice` selects: all, last, or numbers with commas between them.

    Raises InputError for another text, and for an iteration that the file does not contain.
    """
    kept, parts = header.metadata.kept, [part.strip() for part in str(choice).split(",")]
    if parts in (["all"], ["last"]):
        return kept if parts == ["all"] else kept[-1:]
    if len(parts) > 1 and not all(part.isdecimal() for part in parts):
        raise InputError.of("iteration", choice, "give numbers with commas between them, or last or all alone")
    for part in parts:
        if part not in map(str, kept):
            raise InputError.of(
                "iteration",
                part,
                f"{header.path} keeps {', '.join(map(str, kept))}; name one of them, last or all, or run deepthink "
                f"think again with {option('keep')}",
            )
    return [number for number in kept if str(number) in parts]


def one_iteration(header: Header, choice: str) -> int:
    """The number of the chosen iteration; raises InputError as `kept_iterations`, and for several."""
    found = kept_iterations(header, choice)
    if choice == "all" or len(found) > 1:
        raise InputError.of("iteration", choice, "one iteration is needed; give its number, or last")
    return found[0]


def read_artifact(header: Header, iterations: Collection[int] = ()) -> Artifact:
    """Read every byte of the file once, compare the digest, and keep the tensors of some iterations, if any.

    Raises InputError if the bytes do not match the digest, or an iteration was not kept.
    """
    for iteration in iterations:
        kept_iterations(header, iteration)
    wanted = {name for name in header.tensors if int(name.split(".")[1]) in iterations}
    kept: dict[str, bytearray] = {}
    try:
        with open(header.path, "rb", buffering=0) as file:

            def tensor_bytes(name: str) -> bytearray:
                entry = header.tensors[name]
                buffer = bytearray(entry.end - entry.begin)
                file.seek(header.start + entry.begin)
                view = memoryview(buffer)
                while len(view) and (count := file.readinto(view)):  # one call reads at most 2 GiB
                    view = view[count:]
                if name in wanted:
                    kept[name] = buffer
                return buffer

            described = {name: (entry.dtype, entry.shape) for name, entry in header.tensors.items()}
            found = content_digest(header.metadata, described, tensor_bytes)
    except OSError as error:
        raise InputError(f"{header.path}: cannot be read: {error.strerror}") from error
    if found != header.metadata.sha256:
        raise InputError(
            f"{header.path}: damaged: its bytes do not match its digest; run deepthink think again, or copy the file "
            "again"
        )
    return Artifact(header, tuple(iterations), kept)


def provenance_of(header: Header) -> Provenance:
    """The provenance of a file's memory; raises InputError, naming the file, if its update rule is not registered."""
    try:
        return header.metadata.provenance()
    except InputError as error:
        raise InputError(f"{header.path}: {error}") from error


def content_digest(
    metadata: Metadata, tensors: Mapping[str, tuple[str, tuple[int, ...]]], read: Callable[[str], bytes | bytearray]
) -> str:
    """The digest of metadata (without `sha256`) and tensors {name: (dtype, shape)}; `read(name)` returns bytes."""
    return digest(metadata_json(replace(metadata, sha256="")), tensors, read)


def metadata_json(metadata: Metadata) -> str:
    """The metadata as stored in the artifact: canonical JSON."""
    return canonical_json(as_json(metadata))


def summary(header: Header) -> dict[str, Any]:
    """The metadata and sizes as one JSON-ready object, without token ids and the numbers of heads."""
    fields = as_json(header.metadata)
    fields.get("calibrated", {}).pop("held_out", None)
    for stored in ("calibrated", "thresholds"):
        for head in fields.get(stored, {}).get("head", {}).values():
            del head["weights"]
    fields["demonstrations"]["tokens"] = len(fields["demonstrations"].pop("token_ids"))
    shape = {part: list(header.shape(0, part)) for part in PARTS}
    return {"file": header.path, "bytes": header.size, "layers": header.layers, "shape": shape, **fields}


def _check_layout(header: Header) -> None:
    """Raise InputError unless the tensors are as the metadata describe, and fill the file."""
    path, kept, tensors = header.path, header.metadata.kept, header.tensors
    suffixes = ("", ".low", ".scale") if header.metadata.quantized else ("",)
    expected = {
        tensor_name(t, layer, part) + suffix
        for t in kept
        for layer in range(header.layers)
        for part in PARTS
        for suffix in suffixes
    }
    if not kept or not expected or set(tensors) != expected:
        raise InputError(f"{path}: damaged: its tensors are not those of iterations {list(kept)}")
    for name in sorted(tensors):
        _check_tensor(header, name)
    place = 0
    for name, entry in in_file_order(tensors):
        if entry.begin != place or entry.end - entry.begin != BYTES[entry.dtype] * math.prod(entry.shape):
            raise InputError(f"{path}: damaged: the bytes of {name} are at the wrong offset")
        place = entry.end
    if header.start + place != header.size:
        raise InputError(f"{path}: damaged: {header.size} bytes, {header.start + place} expected; copy it again")


def _check_tensor(header: Header, name: str) -> None:
    """Raise InputError unless a tensor has the dtype and shape of the file's form."""
    entry, match, quantized = header.tensors[name], _NAME.fullmatch(name), header.metadata.quantized
    length = len(header.metadata.demonstrations.token_ids)
    assert match is not None
    if match[4] is None:
        # Rows of codes for L tokens: two tokens share a byte at 4 bits.
        dtype, rows = ("F32", length) if quantized is None else ("U8", math.ceil(length * quantized.bits / 8))
        fits = len(entry.shape) == 3 and entry.shape[1] == rows and min(entry.shape) >= 1
        shown = f"(heads, {rows}, size)"
    else:
        assert quantized is not None
        heads, _, size = header.tensors[name.removesuffix(f".{match[4]}")].shape  # checked before: its name is shorter
        dtype, groups = "BF16", math.ceil((length if match[3] == "keys" else size) / quantized.group)
        shape = (heads, groups, size) if match[3] == "keys" else (heads, length, groups)
        fits, shown = entry.shape == shape, str(list(shape))
    if entry.dtype != dtype or not fits:
        raise InputError(f"{header.path}: damaged: {name} is {entry.dtype} {list(entry.shape)}, not {dtype} {shown}")
