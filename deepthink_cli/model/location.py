"""The location of a model: the package, a directory, a GGUF file or a hub repository."""

from __future__ import annotations

import importlib.resources
import re
from dataclasses import dataclass
from pathlib import Path

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.io.hub import check_installed
from deepthink_cli.model.options import POCKET, ModelOptions

SUFFIX = ".gguf"
ADAPTER = "adapter_config.json"  # the configuration of a PEFT adapter
EXTRA = ("gguf", "gguf", "accelerate")  # the extra, and its packages
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class Location:
    """A model's id, the directory or hub id that transformers reads, and the path of the GGUF file in it, if any."""

    id: str
    source: str
    gguf: str | None = None

    @property
    def file(self) -> Path:
        """The path of the GGUF file of a local source."""
        return Path(self.source) / (self.gguf or "")

    @property
    def is_local(self) -> bool:
        """Whether the source is a directory on this machine."""
        return Path(self.source).is_dir()


def locate(options: ModelOptions) -> Location:
    """The location of a model; raises InputError for a path that is neither a model's directory nor a GGUF file."""
    found = _located(options)
    if found.gguf is not None:
        _check_file(found, options)
    return found


def _located(options: ModelOptions) -> Location:
    model, named = options.model, Problem.of("model", options.model)
    try:
        path = Path(model).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "the home directory of this user is not known"
        raise InputError(named.because(f"cannot be read: {why}; give a model's directory, or a hub id")) from error
    is_file = path.suffix == SUFFIX and (path.is_file() or path.is_absolute() or options.gguf is None)
    local = model == POCKET or path.is_dir() or is_file
    if local and options.gguf not in (None, path.name if is_file else None):
        reason = f"is a file of a repository of the hub; name a file of this machine by its path in {option('model')}"
        raise InputError.of("gguf", options.gguf, reason)
    if model == POCKET:
        return Location(POCKET, str(importlib.resources.files("deepthink_cli") / POCKET))
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", ADAPTER)):
            files = ", ".join(map(str, sorted(path.glob(f"*{SUFFIX}"))))
            hint = f"name a file: {files}" if files else "name a directory written by save_pretrained"
            raise InputError(named.because(f"no config.json in this directory; {hint}"))
        return Location(str(path.resolve()), str(path.resolve()))
    if is_file and not path.is_file():
        raise InputError(named.because("no such file; check the path, or name a file of the hub, as in ID/FILE.gguf"))
    if is_file:
        absolute = path.absolute()  # not resolved: the hub's cache consists of links whose targets have no suffix
        return Location(str(absolute), str(absolute.parent), absolute.name)
    if path.is_file():
        raise InputError(named.because(f"a file that does not end with {SUFFIX}; name the model's directory"))
    if model.startswith((".", "/", "~")) or model.count("/") > 1 or path.exists():
        raise InputError(named.because("no such model directory; check the path, or give a hub id such as gpt2"))
    return Location(model, model, options.gguf)


def _check_file(found: Location, options: ModelOptions) -> None:
    """Raise InputError for a GGUF file that cannot be read, and for options without meaning for it."""
    name = str(found.gguf)
    named = Problem.of("model", options.model if found.is_local else f"{options.model}/{name}")
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise InputError(named.because("leads out of the model; name a file inside it"))
    if part := _PART.search(name):
        reason = f"part {int(part[1])} of {int(part[2])} of a split GGUF file; join the parts with llama-gguf-split "
        raise InputError(named.because(f"{reason}--merge, and name the result"))
    if options.quantize is not None:
        raise InputError.of(
            "quantize", options.quantize, f"the weights of a GGUF file are dequantized; omit {option('quantize')}"
        )
    if found.is_local and options.revision is not None:
        reason = f"{option('model')} {options.model} is on this machine; omit {option('revision')}"
        raise InputError.of("revision", options.revision, reason)
    check_installed(named, *EXTRA)


def downloaded(found: Location, options: ModelOptions) -> Location:
    """The location of a hub model's GGUF file in the cache, downloaded if needed; any other location unchanged."""
    from transformers.utils.hub import cached_file

    if found.gguf is None or found.is_local:
        return found
    revision = options.revision or "main"
    path = cached_file(found.source, found.gguf, revision=revision, local_files_only=options.offline)
    assert path is not None
    return Location(found.id, path.removesuffix(found.gguf), found.gguf)
