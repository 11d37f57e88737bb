"""Everything that is known of a model before its weights are loaded: files, configuration, tokenizer, limits."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from deepthink_cli.config import POCKET, ModelOptions
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.fingerprint import config_sha256, hub_commit, tokenizer_sha256, weight_files, weights_sha256
from deepthink_cli.limits import Limits, limits_of, memory_width
from deepthink_cli.origin import ModelIdentity

# Without this, a pickled checkpoint makes transformers ask the hub for a converted one in the background.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")


@dataclass(frozen=True, eq=False)
class Blueprint:
    """A model's configuration, tokenizer and limits, and the options it will be loaded with.

    `id` is what a memory records: `pocket`, a hub id, or the absolute path of a local directory;
    `source` is what transformers is given.
    """

    options: ModelOptions
    id: str
    source: str
    revision: str | None
    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    limits: Limits
    config_sha256: str
    tokenizer_sha256: str

    @property
    def architecture(self) -> str:
        """The name of the model's class."""
        return (self.config.architectures or [self.config.model_type])[0]

    @property
    def device(self) -> torch.device:
        """The device that the options ask for."""
        return choose_device(self.options.device)

    @property
    def dtype(self) -> torch.dtype:
        """The numbers the model computes in: by default float32 on a CPU and the checkpoint's own elsewhere."""
        if self.options.dtype != "auto":
            return getattr(torch, self.options.dtype)  # type: ignore[no-any-return]
        stored = getattr(self.config, "dtype", None)
        return torch.float32 if self.device.type == "cpu" or not isinstance(stored, torch.dtype) else stored

    @property
    def identity(self) -> ModelIdentity:
        """What a memory of this model records; reads sampled bytes of the weight files that lie here."""
        return ModelIdentity(
            id=self.id,
            revision=self.revision,
            architecture=self.architecture,
            config_sha256=self.config_sha256,
            weights_sha256=weights_sha256(weight_files(self.source, self.revision)),
            tokenizer_sha256=self.tokenizer_sha256,
            dtype=str(self.dtype).removeprefix("torch."),
            quantize=self.options.quantize,
        )

    def memory_bytes(self, length: int) -> int:
        """Size of one iteration's float32 memory of `length` tokens, from the configuration."""
        return 4 * length * memory_width(self.config)


def open_model(options: ModelOptions) -> Blueprint:
    """Find a model and read its configuration and tokenizer, without its weights.

    Raises InputError for a directory or hub id that cannot be had, a model without keys and values, and
    one without tokenizer; each names the way out.
    """
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    _check_extras(options)
    choose_device(options.device)
    name, source = _located(options.model)
    config = _config(name, source, options)
    limits = limits_of(config)
    if type(config) not in AutoModelForCausalLM._model_mapping and not options.trust_remote_code:
        raise InputError(f"-m {name}: {config.model_type} is not a causal language model; choose one that is")
    tokenizer = _tokenizer(name, source, options)
    revision = hub_commit(source, options.revision) or options.revision
    return Blueprint(options, name, source, revision, config, tokenizer, limits,
                     config_sha256(config), tokenizer_sha256(tokenizer))  # fmt: skip


def needs_download(options: ModelOptions) -> bool:
    """Whether files of a hub model are not on this machine yet, and may be fetched."""
    _, source = _located(options.model)
    return not options.offline and not Path(source).is_dir() and not weight_files(source, options.revision)


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto is CUDA, then MPS, then the CPU. Raises InputError where it is not here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise InputError(f"--device {name}: torch sees {torch.cuda.device_count()} CUDA devices; use --device auto")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"--device {name}: torch sees no MPS device; use --device auto")
    return device


def _located(model: str) -> tuple[str, str]:
    if model == POCKET:
        return POCKET, str(importlib.resources.files("deepthink_cli") / POCKET)
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(
                f"-m {model}: no config.json in this directory; name a directory written by save_pretrained"
            )
        return str(path.resolve()), str(path.resolve())
    looks_local = model.startswith((".", "/", "~")) or model.count("/") > 1 or path.exists()
    if looks_local:
        raise InputError(f"-m {model}: no such model directory; check the path, or give a hub id such as gpt2")
    return model, model


def _config(name: str, source: str, options: ModelOptions) -> PretrainedConfig:
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(source, **_hub(options))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"-m {name}: {_reason(error)}; {_way_out(options)}") from error
    return config


def _tokenizer(name: str, source: str, options: ModelOptions) -> PreTrainedTokenizerBase:
    missing = f"-m {name}: its tokenizer cannot be loaded"
    local = Path(source)
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if local.is_dir() and not any((local / file).exists() for file in files) and not options.trust_remote_code:
        raise InputError(
            f"{missing}: none of {', '.join(files)} is in the directory; save the tokenizer beside the model"
        )
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **_hub(options))
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise InputError(f"{missing}: {_reason(error)}; save the tokenizer beside the model") from error
    if not len(tokenizer):
        raise InputError(f"{missing}: it has no vocabulary; save the tokenizer beside the model")
    return tokenizer


def _hub(options: ModelOptions) -> dict[str, Any]:
    # trust_remote_code is always given: left out, transformers asks on a terminal.
    return {
        "revision": options.revision or "main",
        "local_files_only": options.offline,
        "trust_remote_code": options.trust_remote_code,
    }


def _check_extras(options: ModelOptions) -> None:
    if options.quantize and importlib.util.find_spec("bitsandbytes") is None:
        raise InputError(
            f"--quantize {options.quantize}: bitsandbytes is not installed; pip install 'deepthink-cli[quantize]'"
        )
    if (options.device_map or options.quantize) and importlib.util.find_spec("accelerate") is None:
        raise InputError("--device-map auto: accelerate is not installed; pip install 'deepthink-cli[multi-gpu]'")


def _way_out(options: ModelOptions) -> str:
    if options.offline:
        return "leave out --offline, or put the model into the cache first"
    return "check the name, --revision and the network, or give a local directory"


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def load_failure(name: str, error: Exception) -> DeepThinkError:
    """The error for weights that cannot be loaded."""
    return DeepThinkError(f"-m {name}: its weights cannot be loaded: {_reason(error)}")
