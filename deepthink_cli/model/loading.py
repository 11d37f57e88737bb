"""Load the weights of a model: safetensors, a safe pickle or a file of another kind."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.hub import load_failure, quiet_libraries
from deepthink_cli.model.files import kind_of
from deepthink_cli.model.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
