"""A digest of every byte of a model's weights, computed once per machine.

It is cached in the user's cache folder under the paths, sizes, times and inodes of the files, and computed again when
one of these has changed. An unreadable or unwritable cache only costs time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from pathlib import Path

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.atomic import replacing
from deepthink_cli.io.text import canonical_json

_CHUNK = 2**20  # bytes read at a time
_THREADS = 8  # one thread is limited by the processor, several by the disk
_SMALL = 2**24  # bytes; smaller weights are hashed about as fast as the cache is read
_TIME_RESOLUTION = 2 * 10**9  # nanoseconds; within this time, some file systems give two changes the same timestamp
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)
_digests: dict[str, str] = {}  # digests of contents by `state_sha256`


@dataclass(frozen=True)
class Stored:
    """A stored tensor: name, dtype and shape as canonical JSON, and byte range; or a whole file, likewise."""

    name: str
    described: str
    file: Path
    begin: int
    end: int


def stored_tensors(file: Path) -> list[Stored]:
    """The tensors of a safetensors file; raises DeepThinkError if its header is damaged."""
    try:
        return _tensors(file)
    except (OSError, *_DAMAGED) as error:
        raise DeepThinkError(f"{file}: damaged, or not safetensors; get the whole checkpoint") from error


def contents_sha256(files: Sequence[Path]) -> str:
    """Digest of every tensor's name, dtype, shape and bytes; shards and their order do not matter.

    A file that is not safetensors contributes its name (unless it is GGUF), size and bytes. Raises DeepThinkError for a
    damaged header, and for tensors larger than their file.
    """
    if sum(file.stat().st_size for file in files) < _SMALL:
        return _hashed(files)
    state, resting = state_sha256(files), _resting(files)
    cached = _cache_folder() / state
    digest = _digests.get(state) or _read(cached)
    if digest is None:
        digest = _hashed(files)
        if resting and state_sha256(files) == state:  # otherwise they may have changed while they were read
            _digests[state] = digest
            _write(cached, digest)
    return digest


def state_sha256(files: Sequence[Path]) -> str:
    """Digest of the paths, sizes, times and inodes of files, without their contents; changes whenever a file does."""
    # Unlike mtime, ctime cannot be set by hand.
    status = [(os.path.realpath(file), os.stat(file)) for file in files]
    rows = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for path, stat in status]
    return hashlib.sha256(canonical_json(rows).encode(errors="surrogatepass")).hexdigest()


def _tensors(file: Path) -> list[Stored]:
    with open(file, "rb") as stream:
        length, size = struct.unpack("<Q", stream.read(8))[0], file.stat().st_size
        if length > size:
            raise ValueError("the header is longer than the file")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    tensors = []
    for name, entry in header.items():
        begin, end = map(index, entry["data_offsets"])
        if not 0 <= begin <= end <= size - length - 8:
            raise ValueError("a tensor is not within the file")
        described = canonical_json([entry["dtype"], entry["shape"]])
        tensors.append(Stored(name, described, file, 8 + length + begin, 8 + length + end))
    return tensors


def _hashed(files: Sequence[Path]) -> str:
    parts = [part for file in files for part in _parts(file)]
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:  # hashlib releases the GIL
        digests = pool.map(_digest, parts)
        lines = [
            canonical_json([part.name, part.described, digest]) for part, digest in zip(parts, digests, strict=True)
        ]
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogatepass")).hexdigest()


def _parts(file: Path) -> list[Stored]:
    size = file.stat().st_size
    if file.suffix != ".safetensors":
        name = "" if file.suffix == ".gguf" else file.name  # users rename GGUF files
        return [Stored(name, str(size), file, 0, size)]
    parts = stored_tensors(file)
    if sum(part.end - part.begin for part in parts) > size:
        raise DeepThinkError(f"{file}: damaged: its tensors are larger than the file; get the whole checkpoint")
    return parts


def _digest(part: Stored) -> str:
    total, buffer = hashlib.sha256(), memoryview(bytearray(min(_CHUNK, part.end - part.begin)))
    with open(part.file, "rb", buffering=0) as stream:
        stream.seek(part.begin)
        left = part.end - part.begin
        while left and (count := stream.readinto(buffer[: min(left, _CHUNK)])):
            total.update(buffer[:count])
            left -= count
    return total.hexdigest()


def _resting(files: Sequence[Path]) -> bool:
    """Whether the last change is old enough that another change would have a different timestamp."""
    changed = max(max(stat.st_mtime_ns, stat.st_ctime_ns) for stat in map(os.stat, files))
    return changed < time.time_ns() - _TIME_RESOLUTION


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "deepthink" / "weights"


def _read(cached: Path) -> str | None:
    with suppress(OSError, ValueError):
        text = cached.read_text(encoding="ascii")
        return text if re.fullmatch("[0-9a-f]{64}", text) else None
    return None


def _write(cached: Path, digest: str) -> None:
    with suppress(OSError, DeepThinkError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        with replacing(cached) as temporary:
            temporary.write_text(digest, encoding="ascii")
