"""A model before its weights are loaded (configuration, tokenizer, limits, identity and sizes), and loading them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from deepthink_cli.errors import DeepThinkError, Problem
from deepthink_cli.io.hub import library_errors, load_failure, quiet_libraries
from deepthink_cli.model.families import cached_values
from deepthink_cli.model.files import kind_of
from deepthink_cli.model.fingerprint import state_sha256, weight_files, weights_sha256
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.options import ModelOptions, choose_device
from deepthink_cli.model.tokens import check_known
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

FEW = 32  # rows; fewer are scored in less time than preparations for many take


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A model's configuration, tokenizer and limits, and the options of its loading.

    Memories record the `id`: `pocket`, a hub id, or the absolute path of a local directory or file. `source` is the
    directory or hub id that transformers loads, `file` the path of the model's file in it, if any. `warning` names the
    parts of the file that transformers ignores. `few_rows`: the model will score fewer than `FEW` rows. Properties
    never read files; methods may.
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
    file: str | None = None
    warning: str | None = None
    few_rows: bool = False
    _identities: dict[str, ModelIdentity] = field(default_factory=dict, repr=False)

    def for_rows(self, count: int | None) -> ModelSpec:
        """The same model, for a number of rows; None is any number."""
        return self if count is None or count >= FEW else replace(self, few_rows=True)

    @property
    def architecture(self) -> str:
        """The name of the model's class."""
        return str((self.config.architectures or [self.config.model_type])[0])

    @property
    def device(self) -> torch.device:
        """The device of the options."""
        return choose_device(self.options.device)

    @property
    def dtype(self) -> torch.dtype:
        """The compute dtype: by default float32 on a CPU and the checkpoint's dtype elsewhere."""
        import torch

        if self.options.dtype != "auto":
            return getattr(torch, self.options.dtype)  # type: ignore[no-any-return]
        stored = getattr(self.config, "dtype", None)
        return torch.float32 if self.device.type == "cpu" or not isinstance(stored, torch.dtype) else stored

    def local_weights(self) -> list[Path]:
        """The weight files on this machine; empty before a download. Raises as `weight_files` does."""
        return weight_files(self.source, self.revision, self.config, self.file)

    def identify(self) -> ModelIdentity:
        """The identity that memories of this model record.

        The weight files are hashed on the first call, and again when they have changed, by a download or a program.
        Otherwise the same object is returned.
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
                gguf=self.file,
            )
        return self._identities[state]

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise InputError for a token id that is not in the configuration's vocabulary.

        Custom code may have another vocabulary than its configuration, so only the loaded model is checked then.
        """
        known = getattr(self.config.get_text_config(decoder=True), "vocab_size", None)
        if isinstance(known, int) and not self.options.trust_remote_code:
            check_known(self.tokenizer, ids, known, self.id, where)

    def memory_bytes(self, length: int) -> int:
        """Size of one iteration's float32 memory of `length` tokens, if all layers are as the configuration says."""
        with library_errors(Problem.of("model", self.id), "correct its config.json"):
            return 4 * length * cached_values(self.config.get_text_config(decoder=True))


def load_network(spec: ModelSpec) -> PreTrainedModel:
    """Load a model's weights, in evaluation mode, onto the device of its options.

    Raises DeepThinkError if the weights are incomplete or damaged.
    """
    from transformers import AutoModelForCausalLM

    options, arguments, kind = spec.options, _arguments(spec), kind_of(spec.file)
    network: PreTrainedModel
    report: dict[str, Any]
    try:
        reading = nullcontext() if kind is None else kind.reading(weights=True)
        with catch_warnings(), quiet_libraries(options.offline), reading:
            simplefilter("ignore")  # the format of a pickle is irrelevant to users
            network, report = AutoModelForCausalLM.from_pretrained(  # type: ignore[misc]
                spec.source,
                revision=spec.revision,
                dtype=spec.dtype,
                local_files_only=options.offline,
                trust_remote_code=options.trust_remote_code,
                weights_only=True,  # for pickled weights, torch's safe loader
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below by name; transformers would refer to its log
                **arguments,
            )
    except Exception as error:  # the libraries raise many types, and the reason is in their message
        raise load_failure(spec.id, error) from error
    hint = "get the whole checkpoint" if spec.file is None else "use the model in the format of transformers"
    if report["mismatched_keys"]:
        name, stored, needed = min(report["mismatched_keys"])
        raise DeepThinkError.of(
            "model",
            spec.id,
            f"its weights cannot be loaded: {name} has the shape {list(stored)}, the configuration says "
            f"{list(needed)}; {hint}",
        )
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise DeepThinkError.of("model", spec.id, f"{len(missing)} weights are missing, such as {missing[0]}; {hint}")
    if "device_map" not in arguments:
        network = network.to(spec.device)  # type: ignore[arg-type]
    network.requires_grad_(False)
    network.train(False)
    return network


def _arguments(spec: ModelSpec) -> dict[str, Any]:
    """Arguments of `from_pretrained` for the file's format, devices and quantization."""
    from transformers import BitsAndBytesConfig

    options, arguments = spec.options, dict[str, Any]()
    if (kind := kind_of(spec.file)) is not None:
        arguments |= kind.arguments(Path(spec.source) / str(spec.file), spec.config)
    if options.device_map is not None:
        arguments["device_map"] = options.device_map
    elif options.quantize is not None:
        arguments["device_map"] = {"": spec.device}
    if options.quantize is not None:
        arguments["quantization_config"] = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_8bit=options.quantize == "8bit",
            load_in_4bit=options.quantize == "4bit",
            bnb_4bit_compute_dtype=spec.dtype,
        )
    return arguments
