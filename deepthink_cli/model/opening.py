"""Find a model (in the package, a directory, a file or a repository of the hub), and read all but its weights."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.io.hub import (
    answers,
    check_installed,
    forbidden_by,
    hub_errors,
    is_repository,
    library_errors,
    quiet_libraries,
    unreachable,
    without_collection,
)
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.model.files import MODEL_FILES, ModelFile, kind_of
from deepthink_cli.model.fingerprint import config_sha256, hub_commit, tokenizer_sha256, weight_files
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.options import POCKET, ModelOptions, choose_device
from deepthink_cli.model.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

LAYERS = 1_000  # the most layers: building them takes ten seconds, and the deepest published models have some 130
ADAPTER = "adapter_config.json"  # the configuration of a PEFT adapter
_OTHER_COUNTS = ("n_layer", "attention_types", "block_count")  # names of numbers of layers that do not end in `layers`


@dataclass(frozen=True)
class Location:
    """A model's id, the directory or hub id that transformers reads, and the path of the model's file in it, if any."""

    id: str
    source: str
    file: str | None = None

    @property
    def path(self) -> Path:
        """The path of the file of a local source."""
        return Path(self.source) / (self.file or "")

    @property
    def kind(self) -> ModelFile | None:
        """The kind of the file; None for a folder."""
        return kind_of(self.file)

    @property
    def is_local(self) -> bool:
        """Whether the source is a directory on this machine."""
        return Path(self.source).is_dir()


def locate(options: ModelOptions) -> Location:
    """The location of a model.

    Raises InputError for a path that is neither a model's directory nor its file, for a file that cannot be read, and
    for options without meaning for it.
    """
    found = _located(options)
    if (name := found.file) is None:
        return found
    named = Problem.of("model", options.model if found.is_local else f"{options.model}/{name}")
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise InputError(named.because("leads out of the model; name a file inside it"))
    if found.kind is None:
        raise InputError(named.because(f"a file that does not end with {_endings()}; name another file"))
    found.kind.check(name, named, options.quantize)
    if found.is_local and options.revision is not None:
        reason = f"{option('model')} {options.model} is on this machine; omit {option('revision')}"
        raise InputError.of("revision", options.revision, reason)
    return found


def _located(options: ModelOptions) -> Location:
    model, named = options.model, Problem.of("model", options.model)
    try:
        path = Path(model).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "the home directory of this user is not known"
        raise InputError(named.because(f"cannot be read: {why}; give a model's directory, or a hub id")) from error
    is_file = kind_of(path.name) is not None and (path.is_file() or path.is_absolute() or options.gguf is None)
    local = model == POCKET or path.is_dir() or is_file
    if local and options.gguf not in (None, path.name if is_file else None):
        reason = f"is a file of a repository of the hub; name a file of this machine by its path in {option('model')}"
        raise InputError.of("gguf", options.gguf, reason)
    if model == POCKET:
        return Location(POCKET, str(importlib.resources.files("deepthink_cli") / POCKET))
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", ADAPTER)):
            files = ", ".join(str(file) for file in sorted(path.glob("*")) if kind_of(file.name))
            hint = f"name a file: {files}" if files else "name a directory written by save_pretrained"
            raise InputError(named.because(f"no config.json in this directory; {hint}"))
        return Location(str(path.resolve()), str(path.resolve()))
    if is_file and not path.is_file():
        example = f"ID/FILE{path.suffix}"
        raise InputError(named.because(f"no such file; check the path, or name a file of the hub, as in {example}"))
    if is_file:
        absolute = path.absolute()  # not resolved: the hub's cache consists of links whose targets have no suffix
        return Location(str(absolute), str(absolute.parent), absolute.name)
    if path.is_file():
        raise InputError(named.because(f"a file that does not end with {_endings()}; name the model's directory"))
    if model.startswith((".", "/", "~")) or model.count("/") > 1 or path.exists():
        raise InputError(named.because("no such model directory; check the path, or give a hub id such as gpt2"))
    return Location(model, model, options.gguf)


def _endings() -> str:
    return " or ".join(f".{name}" for name in MODEL_FILES)


@without_collection()
def open_model(options: ModelOptions) -> ModelSpec:
    """Find a model and read its configuration and tokenizer, without its weights.

    Raises InputError, with a fix, for a directory, file or hub id that cannot be opened, for an unsupported
    architecture and for a missing tokenizer.
    """
    _check_extras(options)
    found = locate(options)
    if needs_download(options) and is_repository(found.source) and not answers():
        raise unreachable(Problem.of("model", found.id), options.offline, _elsewhere(found))
    choose_device(options.device)
    from transformers import AutoConfig, PretrainedConfig

    kind, name, warning = found.kind, found.id, None
    arguments: dict[str, Any] = {"revision": options.revision or "main", "local_files_only": options.offline}
    arguments["trust_remote_code"] = options.trust_remote_code  # without it, transformers would prompt on a terminal
    with quiet_libraries(options.offline), nullcontext() if kind is None else kind.reading():
        with library_errors(Problem.of("model", name), _way_out(found)), _hub(options, found):
            found = _downloaded(found, options)
            _refuse_adapter(found, options)
            source = found.source
            if kind is None:
                _check_layers(name, PretrainedConfig.get_config_dict(source, **arguments)[0])
            else:
                header = kind.header(found.path, Problem.of("model", name))
                arguments |= kind.arguments(found.path)
                _check_layers(name, header.counts())
            config: PretrainedConfig = AutoConfig.from_pretrained(source, **arguments)
            limits, digest = limits_of(config), config_sha256(config)
            _refuse_custom_code(name, config, options)
        tokenizer = _load_tokenizer(found, arguments, options.trust_remote_code)
        revision = hub_commit(source, options.revision, found.file or "config.json") or options.revision
        weight_files(source, revision, config, found.file)  # raises for files outside the model's folder
        if kind is not None:
            with library_errors(Problem.of("model", name), _another(kind)):
                warning = header.warning(name, config, tokenizer)
    return ModelSpec(
        options,
        name,
        source,
        revision,
        config,
        tokenizer,
        limits,
        digest,
        tokenizer_sha256(tokenizer),
        found.file,
        warning,
    )


def needs_download(options: ModelOptions) -> bool:
    """Whether opening and loading this model may download it: its weights are on the hub, and not on this machine."""
    found = locate(options)
    if found.is_local or forbidden_by(options.offline):
        return False
    return not weight_files(found.source, options.revision, file=found.file)


def _downloaded(found: Location, options: ModelOptions) -> Location:
    """The location of a hub model's file in the cache, downloaded if needed; any other location unchanged."""
    from transformers.utils.hub import cached_file

    if found.file is None or found.is_local:
        return found
    revision = options.revision or "main"
    path = cached_file(found.source, found.file, revision=revision, local_files_only=options.offline)
    assert path is not None
    return Location(found.id, path.removesuffix(found.file), found.file)


def _refuse_adapter(found: Location, options: ModelOptions) -> None:
    """Raise InputError if a model's directory or repository holds a PEFT adapter, which transformers would apply."""
    from transformers.utils.hub import cached_file

    if found.is_local:
        held = found.file is None and (found.path / ADAPTER).is_file()
    else:
        raises = ("gated_repo", "missing_entries", "connection_errors")
        silent = {f"_raise_exceptions_for_{each}": False for each in raises}
        named = {"revision": options.revision or "main", "local_files_only": options.offline}
        held = cached_file(found.source, ADAPTER, **named, **silent) is not None
    if held:
        reason = "holds an adapter; merge it into its model first (peft: merge_and_unload, save_pretrained)"
        raise InputError.of("model", options.model, reason)


def _check_layers(name: str, fields: Mapping[str, Any]) -> None:
    """Raise InputError for more layers than any model has: building them takes hours, even without weights."""
    for key, value in fields.items():
        if isinstance(value, dict):  # the part of a model of several kinds of input
            _check_layers(name, value)
        elif (key.endswith("layers") or key in _OTHER_COUNTS) and _largest(value) > LAYERS:
            reason = f"its config.json asks for {key} {value}; a model has at most {LAYERS} layers: correct it"
            raise InputError.of("model", name, reason)


def _largest(value: Any) -> float:
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int | float) else 0


def _refuse_custom_code(name: str, config: PretrainedConfig, options: ModelOptions) -> None:
    """Raise InputError for a model that needs code from outside transformers, unless the options trust it."""
    from transformers import AutoModelForCausalLM

    if options.trust_remote_code:
        return
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise InputError.of("model", name, f"{config.model_type} is not a causal language model; choose one that is")
    parts = (config, config.get_text_config(decoder=True))
    for kernel in {str(part._attn_implementation) for part in parts}:
        if "/" in kernel:
            reason = f"its config.json asks for {kernel}, attention code from the hub; remove attn_implementation"
            raise InputError.of("model", name, reason)


def _load_tokenizer(found: Location, arguments: dict[str, Any], custom_code: bool) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    named = Problem.of("model", found.id)
    failure, hint = named.because("its tokenizer cannot be loaded"), "save the tokenizer beside the model"
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if found.kind is not None:
        failure, hint = named.because("its tokenizer cannot be built"), f"use another {found.kind.form}"
    elif found.is_local and not any((found.path / file).exists() for file in files) and not custom_code:
        raise InputError(failure.because(f"none of {', '.join(files)} is in the directory; {hint}"))
    with library_errors(failure, hint), temporary_folder() as empty:
        # Files of a tokenizer beside a model's file would replace the one that it contains.
        folder = found.source if found.file is None else empty
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, **arguments)
        size = len(tokenizer)
        tokenizer.decode(tokenizer("a b").input_ids)  # some faults of its file show only when it is used
    if not size:
        raise InputError(failure.because(f"it has no vocabulary; {hint}"))
    return tokenizer


def _check_extras(options: ModelOptions) -> None:
    """Raise InputError for options whose packages are not installed."""
    if options.quantize:
        check_installed(Problem.of("quantize", options.quantize), "quantize", "bitsandbytes", "accelerate")
    if options.device_map:
        check_installed(Problem.of("device_map", "auto"), "multi-gpu", "accelerate")


def _way_out(found: Location) -> str:
    if found.kind is not None and found.is_local:
        return _another(found.kind)
    files = "".join(f" (of a {kind.form}, ID/FILE.{name})" for name, kind in MODEL_FILES.items())
    return f"check the name{files} and {option('revision')}, or {_elsewhere(found)}"


def _another(kind: ModelFile) -> str:
    """Advice for a file that transformers cannot use."""
    return f"use another {kind.form}, or the model in the format of transformers"


def _elsewhere(found: Location) -> str:
    """Advice for another place of a hub model."""
    meant = f"; did you mean {POCKET}?" if get_close_matches(found.id, [POCKET]) else ""
    return f"give a local directory{meant}"


def _hub(options: ModelOptions, found: Location) -> AbstractContextManager[None]:
    """Converts the errors of a hub that does not answer."""
    if found.is_local:
        return nullcontext()
    return hub_errors(Problem.of("model", found.id), options.offline, _elsewhere(found))
