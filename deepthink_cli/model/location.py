"""Where a model is read from: the package, a directory, a GGUF file or a hub repository."""

from __future__ import annotations

import importlib.resources
import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path

from transformers.utils.hub import cached_file

from deepthink_cli.errors import InputError
from deepthink_cli.options import POCKET, ModelOptions

SUFFIX = ".gguf"


@dataclass(frozen=True)
class Location:
    """A model's id, the directory or hub id that transformers reads, and the name of the GGUF file in it, if any."""

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
    if found.gguf is not None and options.quantize is not None:
        raise InputError(f"--quantize {options.quantize}: the weights of a GGUF file are dequantized; omit --quantize")
    return found


def _located(options: ModelOptions) -> Location:
    model, path = options.model, Path(options.model).expanduser()
    if model == POCKET:
        if options.gguf is not None:
            raise InputError(f"--gguf {options.gguf}: {POCKET} has no GGUF file; name a model with -m")
        return Location(POCKET, str(importlib.resources.files("deepthink_cli") / POCKET))
    if path.suffix == SUFFIX and (path.is_file() or options.gguf is None):
        return _file(path, options)
    if path.is_dir():
        return _directory(path, options)
    if model.startswith((".", "/", "~")) or model.count("/") > 1 or path.exists():
        raise InputError(f"-m {model}: no such model directory; check the path, or give a hub id such as gpt2")
    return Location(model, model, options.gguf and _checked(options.gguf))


def downloaded(found: Location, options: ModelOptions) -> Location:
    """The location of a hub model's GGUF file in the cache, downloaded if needed; any other location unchanged."""
    if found.gguf is None or found.is_local:
        return found
    path = cached_file(found.source, found.gguf, revision=options.revision or "main", local_files_only=options.offline)
    if path is None:
        raise InputError(f"--gguf {found.gguf}: no such file in {found.id}; look at the repository's files")
    local = _gguf(Path(path), f"--gguf {found.gguf}")
    return replace(local, id=found.id)


def _file(path: Path, options: ModelOptions) -> Location:
    if not path.is_file():
        raise InputError(f"-m {options.model}: no such file; check the path, or give --gguf FILE for a hub repository")
    if options.gguf not in (None, path.name):
        raise InputError(f"--gguf {options.gguf}: -m {options.model} is a GGUF file already; omit --gguf")
    return _gguf(path, f"-m {options.model}")


def _directory(path: Path, options: ModelOptions) -> Location:
    if options.gguf is not None:
        file = path / _checked(options.gguf)
        if not file.is_file():
            names = ", ".join(sorted(each.name for each in path.glob(f"*{SUFFIX}"))) or "none"
            raise InputError(f"--gguf {options.gguf}: no such file in {options.model}; its GGUF files: {names}")
        return _gguf(file, f"--gguf {options.gguf}")
    if not (path / "config.json").is_file():
        files = sorted(each.name for each in path.glob(f"*{SUFFIX}"))
        way_out = f"add --gguf {files[0]}" if files else "name a directory written by save_pretrained"
        raise InputError(f"-m {options.model}: no config.json in this directory; {way_out}")
    return Location(str(path.resolve()), str(path.resolve()))


def _gguf(file: Path, named: str) -> Location:
    """The location of a GGUF file; raises InputError unless it begins as one."""
    _check_extra(named)
    with open(file, "rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError(f"{named}: not a GGUF file; download it again, or name another file")
    # Not resolved: the hub's cache consists of links whose targets have no suffix.
    absolute = file.absolute()
    return Location(str(absolute), str(absolute.parent), file.name)


def _checked(name: str) -> str:
    """The name of a GGUF file within a model; raises InputError for one that leads out of it or has another suffix."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"--gguf {name}: leads out of the model; name a file inside it, or give its path with -m")
    if path.suffix != SUFFIX:
        raise InputError(f"--gguf {name}: not the name of a GGUF file; it must end with {SUFFIX}")
    _check_extra(f"--gguf {name}")
    return name


def _check_extra(named: str) -> None:
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{named}: {package} is not installed; pip install 'deepthink-cli[gguf]'")
