"""Digests that identify a model: its configuration, its tokenizer, and its weights.

The digest of every byte of the weights is computed once per machine. It is cached in the user's cache folder under the
paths, sizes, times and inodes of the files, and computed again when any of them has changed. An unreadable or
unwritable cache only costs time.
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
from dataclasses import dataclass
from operator import index
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.io.cache import read_cached, write_cached
from deepthink_cli.io.text import canonical_json, json_sha256
from deepthink_cli.model.files import kind_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_CHUNK = 2**20  # bytes read at a time
_THREADS = 8  # one thread is limited by the processor, several by the disk
_TIME_RESOLUTION = 2 * 10**9  # nanoseconds; within this time, some file systems give two changes the same timestamp
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)


@dataclass(frozen=True)
class Stored:
    """A stored tensor or a whole file: name, dtype and shape as canonical JSON, and the range of its bytes."""

    name: str
    described: str
    file: Path
    begin: int
    end: int


def weights_sha256(files: Sequence[Path]) -> str:
    """Digest of every tensor's name, dtype, shape and bytes; shards and their order do not matter.

    A file that is not safetensors contributes its size, its bytes and, unless it is a whole model, its name. Empty
    without files. Raises DeepThinkError for a damaged header, and for tensors larger than their file.
    """
    if not files:
        return ""
    state, changed = state_sha256(files), max(max(stat.st_mtime_ns, stat.st_ctime_ns) for stat in map(os.stat, files))
    resting = changed < time.time_ns() - _TIME_RESOLUTION  # another change would have a different timestamp
    cached = read_cached(f"weights/{state}")
    if cached is not None and re.fullmatch("[0-9a-f]{64}", cached):
        return cached
    parts = [part for file in files for part in _parts(file)]
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:  # hashlib releases the GIL
        contents = zip(parts, pool.map(_content_sha256, parts), strict=True)
        lines = [canonical_json([part.name, part.described, content]) for part, content in contents]
    digest = hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogatepass")).hexdigest()
    if resting and state_sha256(files) == state:  # otherwise the files may have changed while they were read
        write_cached(f"weights/{state}", digest)
    return digest


def state_sha256(files: Sequence[Path]) -> str:
    """Digest of the paths, sizes, times and inodes of files, without their contents; changes whenever a file does."""
    # Unlike mtime, ctime cannot be set by hand.
    status = [(os.path.realpath(file), os.stat(file)) for file in files]
    rows = [[path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for path, stat in status]
    return json_sha256(rows)


def _parts(file: Path) -> list[Stored]:
    size = file.stat().st_size
    if file.suffix != ".safetensors":
        name = "" if kind_of(file.name) else file.name  # users rename files of whole models
        return [Stored(name, str(size), file, 0, size)]
    parts = []
    try:
        with open(file, "rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            if length > size:
                raise ValueError("the header is longer than the file")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = map(index, entry["data_offsets"])
            if not 0 <= begin <= end <= size - length - 8:
                raise ValueError("a tensor is not within the file")
            described = canonical_json([entry["dtype"], entry["shape"]])
            parts.append(Stored(name, described, file, 8 + length + begin, 8 + length + end))
    except (OSError, *_DAMAGED) as error:
        raise DeepThinkError(f"{file}: damaged, or not safetensors; get the whole checkpoint") from error
    if sum(part.end - part.begin for part in parts) > size:
        raise DeepThinkError(f"{file}: damaged: its tensors are larger than the file; get the whole checkpoint")
    return parts


def _content_sha256(part: Stored) -> str:
    total, buffer = hashlib.sha256(), memoryview(bytearray(min(_CHUNK, part.end - part.begin)))
    with open(part.file, "rb", buffering=0) as stream:
        stream.seek(part.begin)
        left = part.end - part.begin
        while left and (count := stream.readinto(buffer[: min(left, _CHUNK)])):
            total.update(buffer[:count])
            left -= count
    return total.hexdigest()


_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_DISTRIBUTED = "shard-{0}-model-{0}-of-{0}.safetensors".format("[0-9]" * 5)
_VOLATILE = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "use_cache")


def config_sha256(config: PretrainedConfig) -> str:
    """Digest of the configuration, without fields that depend on the library's version."""
    fields = {name: value for name, value in config.to_diff_dict().items() if name not in _VOLATILE}
    # Infinities are strings: JSON has no number for them (a limit of Granite 4 is one).
    return json_sha256(json.loads(json.dumps(fields, default=str), parse_constant=str))


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of the tokenizer's rules and special tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules: Any = sorted(tokenizer.get_vocab().items())
    else:
        rules = json.loads(backend.to_str())
        rules = {name: rules[name] for name in rules if name not in ("truncation", "padding")}
    special = {name: str(value) for name, value in tokenizer.special_tokens_map.items()}
    return json_sha256([rules, special])


def weight_files(
    source: str, revision: str | None, config: PretrainedConfig | None = None, file: str | None = None
) -> list[Path]:
    """The weight files of a model on this machine, as transformers would choose them, or its `file`.

    Raises InputError for a damaged index, for files outside the model's folder, and for a distributed checkpoint.
    """
    if file is not None:
        path = _local(source, file, revision)
        return [] if path is None else [path]
    for part in Path(source).glob(_DISTRIBUTED):
        raise InputError(f"{part}: part of a distributed checkpoint; save the model with save_pretrained")
    configured = getattr(config, "transformers_weights", None)
    for name in (configured,) if isinstance(configured, str) else _WEIGHTS:
        path = _local(source, _inside(name, f"{source}: config.json"), revision)
        if path is None:
            continue
        if not name.endswith(".index.json"):
            return [path]
        try:
            shards = sorted({str(PurePath(shard)) for shard in json.loads(path.read_bytes())["weight_map"].values()})
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path}: not an index of weight files; get the whole checkpoint") from error
        files = [_local(source, _inside(shard, str(path)), revision) for shard in shards]
        return [file for file in files if file is not None]
    return []


def _inside(name: str, where: str) -> str:
    """The name; raises InputError if it leads out of the model's folder."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise InputError(f"{where} names the weights {name!r}, which are outside the model's folder; use another model")
    return name


def hub_commit(source: str, revision: str | None, name: str = "config.json") -> str | None:
    """The commit of the hub model whose file `name` is in the cache; None for a local directory."""
    path = _local(source, name, revision)
    parents = () if path is None else path.parents
    return next((folder.name for folder in parents if folder.parent.name == "snapshots"), None)


def _local(source: str, name: str, revision: str | None) -> Path | None:
    """A file of a model if it is on this machine."""
    from transformers.utils.hub import cached_file

    try:
        path = cached_file(
            source,
            name,
            revision=revision,
            local_files_only=True,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except (OSError, ValueError):
        return None
    return Path(path) if path else None
