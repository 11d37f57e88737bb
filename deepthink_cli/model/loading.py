"""Weights: from a hub, a directory or the package to a network on its device."""

from __future__ import annotations

from logging import ERROR, getLogger
from typing import Any
from warnings import catch_warnings, simplefilter

from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.model.failures import load_failure
from deepthink_cli.model.spec import ModelSpec


def load_network(spec: ModelSpec) -> PreTrainedModel:
    """Load a model's weights, in evaluation mode, onto the device that its options ask for.

    Raises DeepThinkError where the weights are incomplete or damaged.
    """
    options = spec.options
    placed: dict[str, Any] = {}
    if options.device_map is not None:
        placed["device_map"] = options.device_map
    elif options.quantize is not None:
        placed["device_map"] = {"": spec.device}
    if options.quantize is not None:
        getLogger("bitsandbytes").setLevel(ERROR)  # it warns once for every layer and pass
        placed["quantization_config"] = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_8bit=options.quantize == "8bit",
            load_in_4bit=options.quantize == "4bit",
            bnb_4bit_compute_dtype=spec.dtype,
        )
    network: PreTrainedModel
    report: dict[str, Any]
    try:
        with catch_warnings():
            simplefilter("ignore")  # the format of a pickle is irrelevant to users
            network, report = AutoModelForCausalLM.from_pretrained(  # type: ignore[misc]
                spec.source,
                revision=spec.revision,
                dtype=spec.dtype,
                local_files_only=options.offline,
                trust_remote_code=options.trust_remote_code,
                weights_only=True,  # torch's safe loader, where they are a pickle
                output_loading_info=True,
                **placed,
            )
    except Exception as error:  # the libraries raise many kinds, and the reason is in their text
        raise load_failure(spec.id, error) from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise DeepThinkError(
            f"-m {spec.id}: {len(missing)} weights are missing, such as {missing[0]}; get the whole checkpoint"
        )
    if not placed:
        network = network.to(spec.device)  # type: ignore[arg-type]
    network.requires_grad_(False)
    network.train(False)
    return network
