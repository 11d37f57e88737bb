"""Find a model and read everything but its weights."""

from __future__ import annotations

import importlib.resources
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
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.options import POCKET, ModelOptions


def open_model(options: ModelOptions) -> ModelSpec:
    """Find a model and read its configuration and tokenizer, without its weights.

    Raises InputError for a directory or hub id that cannot be opened, for an unsupported architecture and for a missing
    tokenizer; each message names a fix.
    """
    _check_extras(options)
    choose_device(options.device)
    name, source = _located(options.model)
    with quiet_libraries(options.offline):
        with library_errors(f"-m {name}", _way_out(options)):
            config: PretrainedConfig = AutoConfig.from_pretrained(source, **_hub_options(options))
            limits, digest = limits_of(config), config_sha256(config)
            _refuse_custom_code(name, config, options)
        tokenizer = _load_tokenizer(name, source, options)
        revision = hub_commit(source, options.revision) or options.revision
        weight_files(source, revision, config)  # raises for files outside the model's folder
        return ModelSpec(
            options, name, source, revision, config, tokenizer, limits, digest, tokenizer_sha256(tokenizer)
        )


def needs_download(options: ModelOptions) -> bool:
    """Whether opening and loading this model may download it: a hub model whose weights are not on this machine."""
    _, source = _located(options.model)
    return not options.offline and not Path(source).is_dir() and not weight_files(source, options.revision)


def _located(model: str) -> tuple[str, str]:
    """The model's id, and the directory or hub id that transformers reads it from."""
    if model == POCKET:
        return POCKET, str(importlib.resources.files("deepthink_cli") / POCKET)
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(
                f"-m {model}: no config.json in this directory; name a directory written by save_pretrained"
            )
        return str(path.resolve()), str(path.resolve())
    if model.startswith((".", "/", "~")) or model.count("/") > 1 or path.exists():
        raise InputError(f"-m {model}: no such model directory; check the path, or give a hub id such as gpt2")
    return model, model


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


def _load_tokenizer(name: str, source: str, options: ModelOptions) -> PreTrainedTokenizerBase:
    failure = f"-m {name}: its tokenizer cannot be loaded"
    local = Path(source)
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if local.is_dir() and not any((local / file).exists() for file in files) and not options.trust_remote_code:
        raise InputError(
            f"{failure}: none of {', '.join(files)} is in the directory; save the tokenizer beside the model"
        )
    with library_errors(failure, "save the tokenizer beside the model"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **_hub_options(options))
        size = len(tokenizer)
    if not size:
        raise InputError(f"{failure}: it has no vocabulary; save the tokenizer beside the model")
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


def _way_out(options: ModelOptions) -> str:
    if options.offline:
        return "omit --offline, or put the model into the cache first"
    return "check the name, --revision and the network, or give a local directory"
