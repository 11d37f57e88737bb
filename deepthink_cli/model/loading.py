"""Load weights from the hub, a directory or the package onto a device."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GgufConfig, PreTrainedModel

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.io.libraries import quiet_libraries
from deepthink_cli.model.failures import load_failure
from deepthink_cli.model.gguf_once import read_once
from deepthink_cli.model.merging import merge_adapter
from deepthink_cli.model.spec import ModelSpec

_NOWHERE = ".no-adapter"  # otherwise transformers applies an adapter that it finds beside a model


def load_network(spec: ModelSpec) -> PreTrainedModel:
    """Load a model's weights, in evaluation mode, onto the device of its options.

    Raises DeepThinkError if the weights are incomplete or damaged.
    """
    options, arguments = spec.options, _arguments(spec)
    network: PreTrainedModel
    report: dict[str, Any]
    try:
        once = read_once() if spec.gguf else nullcontext()
        with catch_warnings(), quiet_libraries(options.offline), once:
            simplefilter("ignore")  # the format of a pickle is irrelevant to users
            network, report = AutoModelForCausalLM.from_pretrained(  # type: ignore[misc]
                spec.source,
                revision=spec.revision,
                dtype=spec.dtype,
                local_files_only=options.offline,
                trust_remote_code=options.trust_remote_code,
                weights_only=True,  # for pickled weights, torch's safe loader
                output_loading_info=True,
                adapter_kwargs={"subfolder": _NOWHERE},
                ignore_mismatched_sizes=True,  # refused below by name; transformers would refer to its log
                **arguments,
            )
    except Exception as error:  # the libraries raise many types, and the reason is in their message
        raise load_failure(spec.id, error) from error
    _check_complete(spec, report)
    if "device_map" not in arguments:
        network = network.to(spec.device)  # type: ignore[arg-type]
    if spec.adapter is not None:
        with catch_warnings(), quiet_libraries(options.offline):
            simplefilter("ignore")  # what peft warns of is refused, or computes the same
            network = merge_adapter(network, spec.adapter)
    network.requires_grad_(False)
    network.train(False)
    return network


def _check_complete(spec: ModelSpec, report: dict[str, Any]) -> None:
    """Raise DeepThinkError if the report of transformers names weights that are missing or have another shape."""
    way_out = "get the whole checkpoint" if spec.gguf is None else "use the model in the format of transformers"
    if report["mismatched_keys"]:
        name, stored, needed = min(report["mismatched_keys"])
        raise DeepThinkError(
            f"-m {spec.id}: its weights cannot be loaded: {name} has the shape {list(stored)}, the configuration says "
            f"{list(needed)}; {way_out}"
        )
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise DeepThinkError(f"-m {spec.id}: {len(missing)} weights are missing, such as {missing[0]}; {way_out}")


def _arguments(spec: ModelSpec) -> dict[str, Any]:
    """Arguments of `from_pretrained` for the file's format, devices and quantization."""
    options, arguments = spec.options, dict[str, Any]()
    if spec.gguf is not None:
        # The whole path: transformers looks for a name in the working directory first.
        arguments["gguf_file"] = str(Path(spec.source) / spec.gguf)
        arguments["config"] = spec.config  # otherwise the file is read once more, which takes seconds
        arguments["quantization_config"] = GgufConfig(dequantize=True)  # otherwise kernels of the hub are tried
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
