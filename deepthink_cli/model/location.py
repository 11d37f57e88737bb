"""The location of a model: the package, a directory, a GGUF file or a hub repository."""

from __future__ import annotations

import importlib.resources
import re
from contextlib import suppress
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


def local_path(text: str, named: Problem) -> Path:
    """The path in a text; raises InputError, beginning with `named`, for a path that the system refuses."""
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "the home directory of this user is not known"
        raise InputError(named.because(f"cannot be read: {why}; give a model's directory, or a hub id")) from error
    return path


def locate(options: ModelOptions) -> Location:
    """The location of a model; raises InputError for a path that is neither a model's directory nor a GGUF file."""
    found = _located(options)
    if found.gguf is not None and options.quantize is not None:
        raise InputError.of(
            "quantize", options.quantize, f"the weights of a GGUF file are dequantized; omit {option('quantize')}"
        )
    if found.gguf is not None and found.is_local and options.revision is not None:
        raise InputError.of(
            "revision",
            options.revision,
            f"{option('model')} {options.model} is on this machine; omit {option('revision')}",
        )
    return found


def _located(options: ModelOptions) -> Location:
    model, path = options.model, local_path(options.model, Problem.of("model", options.model))
    if model == POCKET:
        if options.gguf is not None:
            raise InputError(_file_of(options).because(f"{POCKET} has no GGUF file; name another model"))
        return Location(POCKET, str(importlib.resources.files("deepthink_cli") / POCKET))
    if path.is_dir():
        return _directory(path, options)
    if path.suffix == SUFFIX and (path.is_file() or path.is_absolute() or options.gguf is None):
        return _file(path, options)
    if path.is_file():
        raise InputError.of("model", model, f"a file that does not end with {SUFFIX}; name the model's directory")
    if model.startswith((".", "/", "~")) or model.count("/") > 1 or path.exists():
        raise InputError.of("model", model, "no such model directory; check the path, or give a hub id such as gpt2")
    return Location(model, model, options.gguf and _checked(options))


def downloaded(found: Location, options: ModelOptions) -> Location:
    """The location of a hub model's GGUF file in the cache, downloaded if needed; any other location unchanged.

    Raises InputError, with the repository's GGUF files, if the file is not among them.
    """
    from transformers.utils.hub import cached_file

    if found.gguf is None or found.is_local:
        return found
    revision = options.revision or "main"
    try:
        path = cached_file(found.source, found.gguf, revision=revision, local_files_only=options.offline)
    except OSError as error:
        names = cached_gguf_files(found, options) if options.offline else _listed(found.source, revision)
        if not names:
            raise
        place = f"in the cached {found.id}" if options.offline else f"in {found.id}"
        reason = f"no such file {place}; its GGUF files: {', '.join(names)}"
        raise InputError(_file_of(options).because(reason)) from error
    assert path is not None
    return Location(found.id, path.removesuffix(found.gguf), found.gguf)


def cached_gguf_files(found: Location, options: ModelOptions) -> list[str]:
    """The GGUF files of a hub model that are on this machine; empty for another model."""
    from huggingface_hub import snapshot_download

    with suppress(OSError, ValueError):  # not in the cache, or not the name of a repository
        folder = Path(snapshot_download(found.source, revision=options.revision, local_files_only=True))
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob(f"*{SUFFIX}"))
    return []


def _listed(source: str, revision: str) -> list[str]:
    """The GGUF files of a hub repository; empty if they cannot be listed."""
    from huggingface_hub import list_repo_files

    with suppress(Exception):  # the download fails for the same reason, which is reported
        return sorted(name for name in list_repo_files(source, revision=revision) if name.endswith(SUFFIX))
    return []


def _file(path: Path, options: ModelOptions) -> Location:
    if not path.is_file():
        raise InputError.of(
            "model", options.model, "no such file; check the path, or name a file of the hub, as in ID/FILE.gguf"
        )
    if options.gguf not in (None, path.name):
        raise InputError(_file_of(options).because(f"{options.model} is a GGUF file already; name it alone"))
    _refuse_part(path.name, Problem.of("model", options.model))
    return _gguf(path, Problem.of("model", options.model))


def _directory(path: Path, options: ModelOptions) -> Location:
    if options.gguf is not None:
        file = path / _checked(options)
        if not file.is_file():
            names = ", ".join(sorted(each.name for each in path.glob(f"*{SUFFIX}"))) or "none"
            raise InputError(_file_of(options).because(f"no such file; GGUF files of the directory: {names}"))
        return _gguf(file, _file_of(options))
    if not any((path / name).is_file() for name in ("config.json", ADAPTER)):
        files = sorted(each.name for each in path.glob(f"*{SUFFIX}"))
        one_of = "one of " if len(files) > 1 else ""
        hint = (
            f"name {one_of}{', '.join(str(path / each) for each in files)}"
            if files
            else "name a directory written by save_pretrained"
        )
        raise InputError.of("model", options.model, f"no config.json in this directory; {hint}")
    return Location(str(path.resolve()), str(path.resolve()))


def _gguf(file: Path, named: Problem) -> Location:
    """The location of a GGUF file, with its folder as the source."""
    check_installed(named, *EXTRA)
    absolute = file.absolute()  # not resolved: the hub's cache consists of links whose targets have no suffix
    return Location(str(absolute), str(absolute.parent), absolute.name)


def _file_of(options: ModelOptions) -> Problem:
    """The GGUF file of a model, as messages name it."""
    return Problem.of("model", f"{options.model}/{options.gguf}")


def _checked(options: ModelOptions) -> str:
    """The name of a GGUF file in a model; raises InputError if it leads out of the model or has another suffix."""
    named, path = _file_of(options), Path(str(options.gguf))
    if path.is_absolute() or ".." in path.parts:
        raise InputError(named.because("leads out of the model; name a file inside it, or its path alone"))
    if path.suffix != SUFFIX:
        raise InputError(named.because(f"not the name of a GGUF file; it must end with {SUFFIX}"))
    _refuse_part(path.name, named)
    check_installed(named, *EXTRA)
    return str(options.gguf)


def _refuse_part(name: str, named: Problem) -> None:
    if part := _PART.search(name):
        raise InputError(
            named.because(
                f"part {int(part[1])} of {int(part[2])} of a split GGUF file; join the parts with "
                "llama-gguf-split --merge, and name the result"
            )
        )
