"""Digests that tell one model from another."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePath
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from deepthink_cli.errors import InputError
from deepthink_cli.model.contents import Stored, contents_sha256, stored_tensors
from deepthink_cli.provenance import canonical_json

SAMPLE = 256  # bytes taken at the start, the middle and the end of every tensor
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
    """Digest of the configuration, without what changes from one library version to the next."""
    fields = {name: value for name, value in config.to_diff_dict().items() if name not in _VOLATILE}
    return _digest(canonical_json(json.loads(json.dumps(fields, default=str))))


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
    """The digest that identifies weights: that of samples, a colon, and that of every byte.

    Memories of earlier versions and the keys of a run's rows use the first part alone. Neither part depends on how
    tensors are spread over files. An empty string if there are no files. Raises DeepThinkError for a damaged file.
    """
    return f"{samples_sha256(files)}:{contents_sha256(files)}" if files else ""


def samples_sha256(files: list[Path]) -> str:
    """Digest of every tensor's name, dtype, shape and sampled bytes.

    A file that is not safetensors contributes its name, size and samples of its bytes. Raises as `weights_sha256`.
    """
    parts: dict[str, bytes] = {}
    for file in files:
        if file.suffix == ".safetensors":
            parts.update(_sampled_tensors(file))
        else:
            parts[file.name] = _sampled_file(file)
    total = hashlib.sha256()
    for name in sorted(parts):
        total.update(canonical_json(name).encode(errors="surrogatepass") + parts[name])
    return total.hexdigest()


def weight_files(source: str, revision: str | None, config: PretrainedConfig | None = None) -> list[Path]:
    """The weight files of a model that lie on this machine, as transformers would choose them.

    Raises InputError for a damaged index, for files outside the model's folder, and for a distributed checkpoint.
    """
    for file in Path(source).glob(_DISTRIBUTED):
        raise InputError(f"{file}: part of a distributed checkpoint; save the model with save_pretrained")
    named = getattr(config, "transformers_weights", None)
    for name in (named,) if isinstance(named, str) else _WEIGHTS:
        found = _local(source, _inside(name, f"{source}: config.json"), revision)
        if found is None:
            continue
        if not name.endswith(".index.json"):
            return [found]
        files = [_local(source, _inside(shard, str(found)), revision) for shard in _shards(found)]
        return [file for file in files if file is not None]
    return []


def _shards(index: Path) -> list[str]:
    """The files that an index names, in order."""
    try:
        return sorted({str(PurePath(shard)) for shard in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{index}: not an index of weight files; get the whole checkpoint") from error


def _inside(name: str, where: str) -> str:
    """The name of a file in the model's folder."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise InputError(f"{where} names the weights {name!r}, which are outside the model's folder; use another model")
    return name


def hub_commit(source: str, revision: str | None) -> str | None:
    """The commit of a hub model that lies in the cache; None for a local directory."""
    found = _local(source, "config.json", revision)
    return found.parent.name if found is not None and found.parent.parent.name == "snapshots" else None


def _local(source: str, name: str, revision: str | None) -> Path | None:
    try:
        found = cached_file(
            source, name, revision=revision, local_files_only=True,
            _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False,
        )  # fmt: skip
    except (OSError, ValueError):
        return None
    return Path(found) if found else None


def _sampled_tensors(file: Path) -> dict[str, bytes]:
    with open(file, "rb") as stream:
        return {
            one.name: one.described.encode()
            + b"".join(_at(stream, place, min(SAMPLE, one.end - one.begin)) for place in _places(one))
            for one in stored_tensors(file)
        }


def _places(one: Stored) -> tuple[int, ...]:
    return tuple(max(one.begin, place) for place in (one.begin, (one.begin + one.end - SAMPLE) // 2, one.end - SAMPLE))


def _sampled_file(file: Path) -> bytes:
    size = file.stat().st_size
    with open(file, "rb") as stream:
        return str(size).encode() + b"".join(_at(stream, size * n // _BLOCKS, SAMPLE) for n in range(_BLOCKS))


def _at(stream: Any, place: int, count: int) -> bytes:
    stream.seek(place)
    return bytes(stream.read(count))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
