"""Which architectures are supported, determined from the configuration before any weights are loaded."""

from __future__ import annotations

from inspect import signature
from typing import Any

from transformers import AutoModel, AutoModelForCausalLM, PretrainedConfig

from deepthink_cli.errors import InputError

_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention", "attention", "local", "global"}
# Their layers are causal only with is_decoder=True.
_ENCODERS = {
    "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert", "rembert",
    "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl", "xmod",
}  # fmt: skip
# Their positions start at padding_idx + 1 and skip padding tokens.
_PADDED_POSITIONS = {
    "camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
}  # fmt: skip
_PARTICULAR = {
    "cpmant": "puts prompt tokens of its own before every text",
    "llama4": "scales attention by a token's position in its pass",
    "llama4_text": "scales attention by a token's position in its pass",
    "trocr": "is the decoder of an encoder-decoder, trained to attend to its encoder's output",
}


def refuse_unfit(config: PretrainedConfig, text: Any) -> None:
    """Raise InputError, naming it, for an unsupported architecture; `text` is the language model's part of `config`."""
    name = (config.architectures or [text.model_type])[0]
    kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    other = sorted({str(kind) for kind in kinds} - _ATTENTION)
    if other:
        raise InputError(
            f"{name} has {', '.join(other)} layers, which keep no keys and values: Deep-Thinking is undefined there; choose a model with attention only"
        )
    # A decoder loaded alone sets is_encoder_decoder to False; the default of its configuration class is still True.
    if config.is_encoder_decoder or getattr(type(config), "is_encoder_decoder", False):
        raise InputError(
            f"{config.model_type} is not a causal language model: {name} is an encoder-decoder or the decoder of one, trained to attend to its encoder's output; choose a decoder-only model"
        )
    if reason := _PARTICULAR.get(config.model_type):
        raise InputError(
            f"{name} ({config.model_type}) {reason}, which a memory cannot reproduce; choose another model"
        )
    _refuse_encoder(name, text)
    _refuse_without_past(name, config, text)


def _refuse_encoder(name: str, text: Any) -> None:
    if text.model_type in _PADDED_POSITIONS:
        raise InputError(
            f"{name} ({text.model_type}) counts positions from its padding token's id, which a memory cannot continue; choose a model whose positions start at 0"
        )
    if getattr(text, "attention_type", None) == "block_sparse":
        raise InputError(
            f"{name} ({text.model_type}) uses random and non-causal attention blocks in long texts; set attention_type to original_full in its config.json"
        )
    if text.model_type in _ENCODERS and not text.is_decoder:
        raise InputError(
            f"{name} ({text.model_type}) is an encoder: each token also attends to later tokens; if it was trained as a decoder, set is_decoder to true in its config.json, otherwise choose a causal language model"
        )


def _refuse_without_past(name: str, config: PretrainedConfig, text: Any) -> None:
    network = _mapped(AutoModelForCausalLM, config, text)
    if network is None:  # code that comes with the model
        return
    if getattr(network, "_is_stateful", False):
        raise InputError(
            f"{name} ({text.model_type}) keeps a state instead of keys and values: Deep-Thinking is undefined there; choose a model with attention only"
        )
    if "past_key_values" not in signature(network.forward).parameters:
        raise InputError(
            f"{name} ({text.model_type}) takes no keys and values of earlier tokens: Deep-Thinking is undefined there; choose a model that takes them"
        )


def takes_positions(config: PretrainedConfig) -> bool:
    """Whether the network's layers accept positions; True where its code is not known yet."""
    body = _mapped(AutoModel, config, config.get_text_config(decoder=True))
    return body is None or "position_ids" in signature(body.forward).parameters


def _mapped(auto: Any, config: PretrainedConfig, text: Any) -> Any:
    return auto._model_mapping.get(type(text), None) or auto._model_mapping.get(type(config), None)
