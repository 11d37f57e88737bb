"""Merge a LoRA adapter into a network's weights."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.model.adapter import Adapter
from deepthink_cli.model.failures import library_errors


def merge_adapter(network: PreTrainedModel, adapter: Adapter) -> PreTrainedModel:
    """The network with W + scaling * B A as its weights W, in their dtype; the network itself is changed.

    Raises InputError if the adapter was made for a network with other layers or shapes, or for tied embeddings.
    """
    from peft import LoraConfig, PeftModelForCausalLM

    named = f"--adapter {adapter.identity.id}"
    embeddings = (network.get_input_embeddings(), network.get_output_embeddings())  # type: ignore[no-untyped-call]
    tied = {name for name, module in network.named_modules() if module in embeddings}
    with library_errors(named, "use an adapter that was trained on this model"):
        config = LoraConfig.from_pretrained(str(adapter.folder))
        wrapped: Any = PeftModelForCausalLM(network, config)
        if _tied_embeddings(network) and tied & set(wrapped.base_model.targeted_module_names):
            raise InputError(
                f"{named}: changes one of two embeddings that share their weights, and merging would change both; use "
                "an adapter of attention and feed-forward layers"
            )
        report = wrapped.load_adapter(str(adapter.folder), "default", is_trainable=False)
        strays = sorted((*report.missing_keys, *report.unexpected_keys))
        if strays:
            raise InputError(
                f"{named}: made for a model with other layers: {len(strays)} weights do not fit, such as {strays[0]}; "
                "use an adapter that was trained on this model"
            )
        merged: PreTrainedModel = wrapped.merge_and_unload()
    broken = [name for name, weight in merged.named_parameters() if not bool(weight.isfinite().all())]
    if broken:
        raise DeepThinkError(f"{named}: {broken[0]} holds NaN or infinite values after merging; use --dtype float32")
    return merged


def _tied_embeddings(network: PreTrainedModel) -> bool:
    return bool(getattr(network.config.get_text_config(decoder=True), "tie_word_embeddings", False))
