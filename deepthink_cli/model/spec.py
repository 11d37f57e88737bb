"""Everything that is known of a model before its weights are loaded: files, configuration, tokenizer, limits."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import CRITICAL
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from deepthink_cli.errors import DeepThinkError, InputError, out_of_memory, ran_out_of_memory
from deepthink_cli.model.contents import state_sha256
from deepthink_cli.model.fingerprint import config_sha256, hub_commit, tokenizer_sha256, weight_files, weights_sha256
from deepthink_cli.model.footprint import memory_width
from deepthink_cli.model.limits import Limits, limits_of
from deepthink_cli.model.tokens import check_known
from deepthink_cli.options import POCKET, ModelOptions
from deepthink_cli.provenance import ModelIdentity

# Without this, a pickled checkpoint makes transformers ask the hub for a converted one in the background.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")


@dataclass(frozen=True, eq=False)
class ModelSpec:
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
    _identities: dict[str, ModelIdentity] = field(default_factory=dict, init=False, repr=False)

    @property
    def architecture(self) -> str:
        """The name of the model's class."""
        return str((self.config.architectures or [self.config.model_type])[0])

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

    def local_weights(self) -> list[Path]:
        """The weight files on this machine; none before a download. Raises as `weight_files` does."""
        return weight_files(self.source, self.revision, self.config)

    def has_pickled_weights(self) -> bool:
        """Whether weights on this machine are a pickle, which only torch's safe loader may read."""
        return any(file.suffix != ".safetensors" for file in self.local_weights())

    def identify(self) -> ModelIdentity:
        """The identity that memories of this model record.

        Hashes the weight files on the first call and, because a download or a program may change them, whenever they
        have changed since; otherwise returns the same object.
        """
        files = self.local_weights()
        state = state_sha256(files)
        if state not in self._identities:
            self._identities[state] = ModelIdentity(
                id=self.id,
                revision=self.revision,
                architecture=self.architecture,
                config_sha256=self.config_sha256,
                weights_sha256=weights_sha256(files),
                tokenizer_sha256=self.tokenizer_sha256,
                dtype=str(self.dtype).removeprefix("torch."),
                quantize=self.options.quantize,
            )
        return self._identities[state]

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise InputError for a token id that is not in the configuration's vocabulary.

        Not checked for custom code, whose vocabulary may differ from the configuration: the loaded model is checked.
        """
        known = getattr(self.config.get_text_config(decoder=True), "vocab_size", None)
        if isinstance(known, int) and not self.options.trust_remote_code:
            check_known(self.tokenizer, ids, known, self.id, where)

    def memory_bytes(self, length: int) -> int:
        """Size of one iteration's float32 memory of `length` tokens, from the configuration."""
        with _written_by_others(f"-m {self.id}", "correct its config.json"):
            return 4 * length * memory_width(self.config)


def open_model(options: ModelOptions) -> ModelSpec:
    """Find a model and read its configuration and tokenizer, without its weights.

    Raises InputError for a directory or hub id that cannot be had, a model without keys and values, and
    one without tokenizer; each names the way out.
    """
    logging.set_verbosity(CRITICAL)  # what goes wrong is raised, and told once
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    _check_extras(options)
    choose_device(options.device)
    name, source = _located(options.model)
    with _written_by_others(f"-m {name}", _way_out(options)):
        config: PretrainedConfig = AutoConfig.from_pretrained(source, **_hub(options))
        limits, digest = limits_of(config), config_sha256(config)
        _refuse_code(name, config, options)
    tokenizer = _tokenizer(name, source, options)
    revision = hub_commit(source, options.revision) or options.revision
    weight_files(source, revision, config)  # refuses files that are not the model's own
    return ModelSpec(options, name, source, revision, config, tokenizer, limits, digest, tokenizer_sha256(tokenizer))


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


def _refuse_code(name: str, config: PretrainedConfig, options: ModelOptions) -> None:
    """Raise InputError for a model that needs code which does not come with transformers, unless that is allowed."""
    if options.trust_remote_code:
        return
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise InputError(f"-m {name}: {config.model_type} is not a causal language model; choose one that is")
    kernels = {str(one._attn_implementation) for one in (config, config.get_text_config(decoder=True))}
    for kernel in kernels:
        if "/" in kernel:
            raise InputError(
                f"-m {name}: its config.json asks for {kernel}, attention code from the hub; remove attn_implementation"
            )


def _tokenizer(name: str, source: str, options: ModelOptions) -> PreTrainedTokenizerBase:
    missing = f"-m {name}: its tokenizer cannot be loaded"
    local = Path(source)
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if local.is_dir() and not any((local / file).exists() for file in files) and not options.trust_remote_code:
        raise InputError(
            f"{missing}: none of {', '.join(files)} is in the directory; save the tokenizer beside the model"
        )
    with _written_by_others(missing, "save the tokenizer beside the model"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **_hub(options))
        size = len(tokenizer)
    if not size:
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


@contextmanager
def _written_by_others(what: str, way_out: str) -> Iterator[None]:
    try:
        yield
    except DeepThinkError:
        raise
    except Exception as error:  # the libraries raise many kinds, and the reason is in their text
        if "trust_remote_code" in str(error):
            way_out = "read that code, and allow it with --trust-remote-code"
        raise InputError(f"{what}: {_reason(error)}; {way_out}") from error


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # The first line of some messages only says that there is an error.
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(" .")


def load_failure(name: str, error: Exception) -> DeepThinkError:
    """The error for weights that cannot be loaded."""
    if ran_out_of_memory(error):
        return DeepThinkError(f"-m {name}: {out_of_memory(error)}")
    if isinstance(error, UnpicklingError):
        return DeepThinkError(
            f"-m {name}: its weights are a pickle that torch's safe loader refuses: damaged, or made to run code; "
            "get them as safetensors"
        )
    return DeepThinkError(f"-m {name}: its weights cannot be loaded: {_reason(error)}")
