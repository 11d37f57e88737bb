"""Find a model and read everything but its weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
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
from deepthink_cli.model.fingerprint import config_sha256, hub_commit, tokenizer_sha256, weight_files
from deepthink_cli.model.gguf import GgufHeader, ignored_parts, read_header
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.loading import read_once
from deepthink_cli.model.location import ADAPTER, SUFFIX, Location, downloaded, locate
from deepthink_cli.model.options import POCKET, ModelOptions, choose_device
from deepthink_cli.model.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

LAYERS = 1_000  # the most layers: building them takes ten seconds, and the deepest published models have some 130
_OTHER_COUNTS = ("n_layer", "attention_types", "block_count")  # names of numbers of layers that do not end in `layers`


@without_collection()
def open_model(options: ModelOptions) -> ModelSpec:
    """Find a model and read its configuration and tokenizer, without its weights.

    Raises InputError, with a fix, for a directory, GGUF file or hub id that cannot be opened, for an unsupported
    architecture and for a missing tokenizer.
    """
    _check_extras(options)
    found = locate(options)
    if needs_download(options) and is_repository(found.source) and not answers():
        raise unreachable(Problem.of("model", found.id), options.offline, _elsewhere(found))
    choose_device(options.device)
    from transformers import AutoConfig, PretrainedConfig

    name, arguments = found.id, {"revision": options.revision or "main", "local_files_only": options.offline}
    arguments["trust_remote_code"] = options.trust_remote_code  # without it, transformers would prompt on a terminal
    with quiet_libraries(options.offline), read_once() if found.gguf else nullcontext():
        with library_errors(Problem.of("model", name), _way_out(options, found)), _hub(options, found):
            found = downloaded(found, options)
            _refuse_adapter(found, options)
            source, header = found.source, None
            if found.gguf is None:
                _check_layers(name, PretrainedConfig.get_config_dict(source, **arguments)[0])
            else:
                header = read_header(found.file, Problem.of("model", name))
                arguments |= {"gguf_file": str(found.file)}
                _check_layers(name, {"block_count": header.value("block_count")})
            config: PretrainedConfig = AutoConfig.from_pretrained(source, **arguments)
            limits, digest = limits_of(config), config_sha256(config)
            _refuse_custom_code(name, config, options)
        tokenizer = _load_tokenizer(found, arguments, options.trust_remote_code)
        revision = hub_commit(source, options.revision, found.gguf or "config.json") or options.revision
        weight_files(source, revision, config, found.gguf)  # raises for files outside the model's folder
        warning = None if header is None else _ignored(name, header, config, tokenizer)
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
        found.gguf,
        warning,
    )


def needs_download(options: ModelOptions) -> bool:
    """Whether opening and loading this model may download it: its weights are on the hub, and not on this machine."""
    found = locate(options)
    if found.is_local or forbidden_by(options.offline):
        return False
    return not weight_files(found.source, options.revision, gguf=found.gguf)


def _refuse_adapter(found: Location, options: ModelOptions) -> None:
    """Raise InputError if a model's directory or repository holds a PEFT adapter, which transformers would apply."""
    from transformers.utils.hub import cached_file

    if found.is_local:
        held = found.gguf is None and (Path(found.source) / ADAPTER).is_file()
    else:
        raises = ("gated_repo", "missing_entries", "connection_errors")
        silent = {f"_raise_exceptions_for_{each}": False for each in raises}
        named = {"revision": options.revision or "main", "local_files_only": options.offline}
        held = cached_file(found.source, ADAPTER, **named, **silent) is not None
    if held:
        reason = "holds an adapter; merge it into its model first (peft: merge_and_unload, save_pretrained)"
        raise InputError.of("model", options.model, reason)


def _ignored(name: str, header: GgufHeader, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> str | None:
    """A warning of the parts of the file that transformers ignores; None without such parts."""
    with library_errors(Problem.of("model", name), "use another GGUF file, or the model in the format of transformers"):
        ignored = ignored_parts(header, config, tokenizer)
    if not ignored:
        return None
    return (
        f"{option('model')} {name}: transformers ignores {'; '.join(ignored)}: scores may differ from the "
        "published model's"
    )


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
    local = Path(found.source)
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if found.gguf is not None:
        failure, hint = named.because("its tokenizer cannot be built"), "use another GGUF file"
    elif found.is_local and not any((local / file).exists() for file in files) and not custom_code:
        raise InputError(failure.because(f"none of {', '.join(files)} is in the directory; {hint}"))
    with library_errors(failure, hint), temporary_folder() as empty:
        # Files of a tokenizer beside a GGUF file would replace the one that it contains.
        folder = found.source if found.gguf is None else empty
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


def _way_out(options: ModelOptions, found: Location) -> str:
    if found.gguf is not None and found.is_local:
        return "use another GGUF file, or the model in the format of transformers"
    return f"check the name (of a GGUF file, ID/FILE{SUFFIX}) and {option('revision')}, or {_elsewhere(found)}"


def _elsewhere(found: Location) -> str:
    """Advice for another place of a hub model."""
    meant = f"; did you mean {POCKET}?" if get_close_matches(found.id, [POCKET]) else ""
    return f"give a local directory{meant}"


def _hub(options: ModelOptions, found: Location) -> AbstractContextManager[None]:
    """Converts the errors of a hub that does not answer."""
    if found.is_local:
        return nullcontext()
    return hub_errors(Problem.of("model", found.id), options.offline, _elsewhere(found))
