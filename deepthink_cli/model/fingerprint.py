"""Digests that identify a model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePath
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from deepthink_cli.errors import InputError
from deepthink_cli.io.text import canonical_json
from deepthink_cli.model.contents import Stored, contents_sha256, stored_tensors

SAMPLE = 256  # bytes sampled at the start, the middle and the end of every tensor
_BLOCKS = 256  # samples of a weights file that is not safetensors
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_DISTRIBUTED = "shard-{0}-model-{0}-of-{0}.safetensors".format("[0-9]" * 5)
_VOLATILE = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "use_cache")


def config_sha256(config: PretrainedConfig) -> str:
    """Digest of the configuration, without fields that depend on the library's version."""
    fields = {name: value for name, value in config.to_diff_dict().items() if name not in _VOLATILE}
    # Infinities are strings: JSON has no number for them (a limit of Granite 4 is one).
    return _digest(canonical_json(json.loads(json.dumps(fields, default=str), parse_constant=str)))


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of the tokenizer's rules and special tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules: Any = sorted(tokenizer.get_vocab().items())
    else:
        rules = json.loads(backend.to_str())
        rules = {name: rules[name] for name in rules if name not in ("truncation", "padding")}
    special = {name: str(value) for name, value in tokenizer.special_tokens_map.items()}
    return _digest(canonical_json([rules, special]))


def weights_sha256(files: list[Path]) -> str:
    """The digest that identifies weights: a digest of samples, a colon, and a digest of every byte.

    Memories of earlier versions and the keys of a run's rows use only the first part. Neither part depends on how
    tensors are distributed over files. An empty string if there are no files. Raises DeepThinkError for a damaged file.
    """
    return f"{samples_sha256(files)}:{contents_sha256(files)}" if files else ""


def samples_sha256(files: list[Path]) -> str:
    """Digest of every tensor's name, dtype, shape and sampled bytes.

    A file that is not safetensors contributes its name (unless it is GGUF), size and samples of its bytes.
    Raises as `weights_sha256`.
    """
    parts: dict[str, bytes] = {}
    for file in files:
        if file.suffix == ".safetensors":
            parts.update(_sampled_tensors(file))
        else:
            parts["" if file.suffix == ".gguf" else file.name] = _sampled_file(file)
    total = hashlib.sha256()
    for name in sorted(parts):
        total.update(canonical_json(name).encode(errors="surrogatepass") + parts[name])
    return total.hexdigest()


def weight_files(
    source: str, revision: str | None, config: PretrainedConfig | None = None, gguf: str | None = None
) -> list[Path]:
    """The weight files of a model that are on this machine, as transformers would choose them, or its file `gguf`.

    Raises InputError for a damaged index, for files outside the model's folder, and for a distributed checkpoint.
    """
    if gguf is not None:
        path = _local(source, gguf, revision)
        return [] if path is None else [path]
    for file in Path(source).glob(_DISTRIBUTED):
        raise InputError(f"{file}: part of a distributed checkpoint; save the model with save_pretrained")
    configured = getattr(config, "transformers_weights", None)
    for name in (configured,) if isinstance(configured, str) else _WEIGHTS:
        path = _local(source, _inside(name, f"{source}: config.json"), revision)
        if path is None:
            continue
        if not name.endswith(".index.json"):
            return [path]
        files = [_local(source, _inside(shard, str(path)), revision) for shard in _shards(path)]
        return [file for file in files if file is not None]
    return []


def _shards(index: Path) -> list[str]:
    """The files that an index names, in order."""
    try:
        return sorted({str(PurePath(shard)) for shard in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{index}: not an index of weight files; get the whole checkpoint") from error


def _inside(name: str, where: str) -> str:
    """`name`, unless it leads out of the model's folder; raises InputError then."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise InputError(f"{where} names the weights {name!r}, which are outside the model's folder; use another model")
    return name


def hub_commit(source: str, revision: str | None, name: str = "config.json") -> str | None:
    """The commit of a hub model of which file `name` is in the cache; None for a local directory."""
    path = _local(source, name, revision)
    parents = () if path is None else path.parents
    return next((folder.name for folder in parents if folder.parent.name == "snapshots"), None)


def _local(source: str, name: str, revision: str | None) -> Path | None:
    """A file of a model if it is on this machine."""
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


def _sampled_tensors(file: Path) -> dict[str, bytes]:
    with open(file, "rb") as stream:
        return {
            tensor.name: tensor.described.encode()
            + b"".join(_at(stream, place, min(SAMPLE, tensor.end - tensor.begin)) for place in _places(tensor))
            for tensor in stored_tensors(file)
        }


def _places(tensor: Stored) -> tuple[int, ...]:
    """Where the samples of a tensor start: at its beginning, around its middle and before its end."""
    begin, end = tensor.begin, tensor.end
    return tuple(max(begin, place) for place in (begin, (begin + end - SAMPLE) // 2, end - SAMPLE))


def _sampled_file(file: Path) -> bytes:
    size = file.stat().st_size
    with open(file, "rb") as stream:
        return str(size).encode() + b"".join(_at(stream, size * n // _BLOCKS, SAMPLE) for n in range(_BLOCKS))


def _at(stream: Any, place: int, count: int) -> bytes:
    stream.seek(place)
    return bytes(stream.read(count))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
