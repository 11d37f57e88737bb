"""Find a model and read everything but its weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from deepthink_cli.errors import InputError
from deepthink_cli.io.libraries import quiet_libraries
from deepthink_cli.model.devices import choose_device
from deepthink_cli.model.failures import library_errors
from deepthink_cli.model.fingerprint import config_sha256, hub_commit, tokenizer_sha256, weight_files
from deepthink_cli.model.limits import limits_of
from deepthink_cli.model.location import Location, downloaded, locate
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.options import ModelOptions


def open_model(options: ModelOptions) -> ModelSpec:
    """Find a model and read its configuration and tokenizer, without its weights.

    Raises InputError for a directory, GGUF file or hub id that cannot be opened, for an unsupported architecture and
    for a missing tokenizer; each message names a fix.
    """
    _check_extras(options)
    choose_device(options.device)
    found = locate(options)
    name, arguments = found.id, _hub_options(options)
    with quiet_libraries(options.offline):
        with library_errors(f"-m {name}", _way_out(options, found)):
            found = downloaded(found, options)
            source = found.source
            if found.gguf is not None:
                arguments |= {"gguf_file": str(found.file)}
            config: PretrainedConfig = AutoConfig.from_pretrained(source, **arguments)
            limits, digest = limits_of(config), config_sha256(config)
            _refuse_custom_code(name, config, options)
        tokenizer = _load_tokenizer(found, arguments, options.trust_remote_code)
        revision = hub_commit(source, options.revision, found.gguf or "config.json") or options.revision
        weight_files(source, revision, config, found.gguf)  # raises for files outside the model's folder
        return ModelSpec(
            options, name, source, revision, config, tokenizer, limits, digest, tokenizer_sha256(tokenizer), found.gguf
        )


def needs_download(options: ModelOptions) -> bool:
    """Whether opening and loading this model may download it: a hub model whose weights are not on this machine."""
    found = locate(options)
    if options.offline or found.is_local:
        return False
    return not weight_files(found.source, options.revision, gguf=found.gguf)


def _refuse_custom_code(name: str, config: PretrainedConfig, options: ModelOptions) -> None:
    """Raise InputError for a model that needs code which does not come with transformers, unless that is allowed."""
    if options.trust_remote_code:
        return
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise InputError(f"-m {name}: {config.model_type} is not a causal language model; choose one that is")
    parts = (config, config.get_text_config(decoder=True))
    for kernel in {str(part._attn_implementation) for part in parts}:
        if "/" in kernel:
            raise InputError(
                f"-m {name}: its config.json asks for {kernel}, attention code from the hub; remove attn_implementation"
            )


def _load_tokenizer(found: Location, arguments: dict[str, Any], custom_code: bool) -> PreTrainedTokenizerBase:
    failure, way_out = f"-m {found.id}: its tokenizer cannot be loaded", "save the tokenizer beside the model"
    local = Path(found.source)
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if found.gguf is not None:
        failure, way_out = f"-m {found.id}: no tokenizer in this GGUF file", "use a file that contains its tokenizer"
    elif found.is_local and not any((local / file).exists() for file in files) and not custom_code:
        raise InputError(f"{failure}: none of {', '.join(files)} is in the directory; {way_out}")
    with library_errors(failure, way_out):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(found.source, **arguments)
        size = len(tokenizer)
    if not size:
        raise InputError(f"{failure}: it has no vocabulary; {way_out}")
    return tokenizer


def _hub_options(options: ModelOptions) -> dict[str, Any]:
    # Without trust_remote_code, transformers would prompt on a terminal.
    return {
        "revision": options.revision or "main",
        "local_files_only": options.offline,
        "trust_remote_code": options.trust_remote_code,
    }


def _check_extras(options: ModelOptions) -> None:
    """Raise InputError for options whose packages are not installed."""
    if options.quantize and importlib.util.find_spec("bitsandbytes") is None:
        raise InputError(
            f"--quantize {options.quantize}: bitsandbytes is not installed; pip install 'deepthink-cli[quantize]'"
        )
    if (options.device_map or options.quantize) and importlib.util.find_spec("accelerate") is None:
        raise InputError("--device-map auto: accelerate is not installed; pip install 'deepthink-cli[multi-gpu]'")


def _way_out(options: ModelOptions, found: Location) -> str:
    if found.gguf is not None and found.is_local:
        return "use another GGUF file, or the model in the format of transformers"
    if options.offline:
        return "omit --offline, or put the model into the cache first"
    return "check the name, --revision and the network, or give a local directory"
