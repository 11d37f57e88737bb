"""Properties of an architecture, determined from its configuration before any weights are loaded.

`text` is the configuration of the language model: the whole configuration, or the text part of a
multimodal one.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention", "attention", "local", "global"}
_STATE = "keep a state instead of keys and values: Deep-Thinking is undefined there"
_STATE_TOO = "keep a state besides keys and values: Deep-Thinking is undefined there"
_SELECTED = "select the tokens that they attend to by keys of an indexer, which a memory does not hold"
_COMPRESSED = "compress the keys and values of several tokens into one: Deep-Thinking is undefined there"
_OTHER_LAYERS = {
    "compressed_sparse_attention": _COMPRESSED,
    "conv": _STATE,
    "heavily_compressed_attention": _COMPRESSED,
    "hybrid": _STATE_TOO,
    "hybrid_sliding": _STATE_TOO,
    "indexed_attention": _SELECTED,
    "linear_attention": _STATE,
    "minimax_m3_sparse": _SELECTED,
}
_ENCODERS = {
    *("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert"),
    *("rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl", "xmod"),
}
_ALIBI = {"bloom", "mpt"}
_MAX_KEYS = {"doge": "keep_window_size", "gpt_neo": "max_position_embeddings"}  # names in configurations
_WINDOWED = ("sliding_attention", "chunked_attention", "local")  # names of kinds of layers in configurations
WINDOW_SIZES = ("sliding_window", "attention_chunk_size", "window_size")  # names in configurations
_DRAFT = "drafts for another model from that one's keys and values and keeps none itself"
_UNSUPPORTED = {
    "blt": "groups bytes into patches, whose keys and values are not those of single bytes",
    "cpmant": "adds prompt tokens of its own before every text",
    "gemma4_assistant": _DRAFT,
    "gemma4_unified_assistant": _DRAFT,
    "mllama": "has layers that attend to images only and keep no keys and values of a text",
    "trocr": "is the decoder of an encoder-decoder, trained to attend to its encoder's output",
}


def refuse_unfit(config: PretrainedConfig, text: Any) -> None:
    """Raise InputError for an unsupported architecture, with its name."""
    from transformers import AutoModelForCausalLM

    name = (config.architectures or [config.model_type])[0]
    subject = f"{name} ({config.model_type})"
    if reason := _UNSUPPORTED.get(config.model_type):
        raise InputError(f"{subject} {reason}, which a memory cannot reproduce; choose another model")
    if others := _layer_kinds(text) - _ATTENTION_LAYERS:
        kind = min(others, key=lambda kind: (kind not in _OTHER_LAYERS, kind))
        reason = _OTHER_LAYERS.get(kind, "keep no keys and values: Deep-Thinking is undefined there")
        raise InputError(
            f"{subject} has {kind} layers, which {reason}; choose a model with full or sliding attention only"
        )
    # A decoder loaded alone sets is_encoder_decoder to False; the default of its configuration class is still True.
    if config.is_encoder_decoder or getattr(type(config), "is_encoder_decoder", False):
        raise InputError(
            f"{config.model_type} is not a causal language model: {name} is an encoder-decoder or the decoder of one, "
            "trained to attend to its encoder's output; choose a decoder-only model"
        )
    # With another value of the field, tokens within images alone attend to later ones.
    if text.model_type in _ENCODERS or getattr(text, "use_bidirectional_attention", None) in (True, "all"):
        raise InputError(
            f"{subject} is an encoder: each token also attends to later tokens; choose a causal language model"
        )
    classes: Any = AutoModelForCausalLM._model_mapping
    network = classes.get(type(config), None) or classes.get(type(text), None)
    if network is None:  # the model brings its own code
        return
    # Such a class may also be made of attention layers only, as Granite 4 micro.
    if getattr(network, "_is_stateful", False) and not _layer_kinds(text):
        raise InputError(
            f"{subject} keeps a state instead of keys and values: Deep-Thinking is undefined there; "
            "choose a model with attention only"
        )
    if cache_argument(network.forward) is None:
        raise InputError(
            f"{subject} takes no keys and values of earlier tokens: Deep-Thinking is undefined there; "
            "choose a model that takes them"
        )


def _layer_kinds(text: Any) -> set[str]:
    """The kinds of layers that a configuration names; empty if all layers are of one unnamed kind."""
    kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    return {str(kind) for kind in kinds}


def cache_argument(forward: Callable[..., Any]) -> str | None:
    """The name of a network's argument for the keys and values of earlier tokens; None if it has no such argument.

    transformers 5.24 renamed the argument to `cache` in most networks. XLM's `cache` has another type, a dict.
    """
    parameters = signature(forward).parameters
    if "past_key_values" in parameters:
        return "past_key_values"
    return "cache" if "cache" in parameters and "dict" not in str(parameters["cache"].annotation) else None


def has_alibi(text: Any) -> bool:
    """Whether positions follow from the distance between tokens (ALiBi) instead of `position_ids`."""
    return text.model_type in _ALIBI or bool(getattr(text, "alibi", False))


def max_keys(text: Any) -> int | None:
    """The number of keys that a token can attend to, apart from the number of positions; None: no limit.

    GPT-Neo stores its attention mask with the weights, for a fixed number of keys. Doge selects among more keys than
    its window by their values. These are equal for equal tokens, so that the selection is undefined.
    """
    name = _MAX_KEYS.get(text.model_type)
    return None if name is None else int(getattr(text, name))


def window_sizes(text: Any) -> dict[str, Any]:
    """The sizes of the layers' attention windows, by their names in the configuration; empty without windows."""
    sizes = {name: getattr(text, name, None) for name in WINDOW_SIZES}
    return {name: size for name, size in sizes.items() if size is not None}


def windowed_layers(text: Any) -> tuple[int, int, int] | None:
    """The size of the attention window, the number of layers with a window, and of all layers; None without a window.

    In a layer with a window, a token attends only to the tokens of its window.
    """
    size = next(iter(window_sizes(text).values()), None)
    kinds = getattr(text, "layer_types", None) or getattr(text, "attention_layers", None)
    layers = int(text.num_hidden_layers)
    windowed = layers if kinds is None else sum(kind in _WINDOWED for kind in kinds)
    return (size, windowed, layers) if size and windowed else None


def longrope_positions(text: Any) -> int | None:
    """The number of positions up to which a LongRoPE model uses its short factors; None for other models.

    A longer pass rotates all its keys by other factors, so that it cannot follow a memory of short factors.
    """
    rotary = getattr(text, "rope_parameters", None) or {}
    layers = [rotary, *(each for each in rotary.values() if isinstance(each, dict))]
    found = [each for each in layers if each.get("rope_type") == "longrope" or "long_mscale" in each]
    return min((bound for each in found if (bound := each.get("original_max_position_embeddings"))), default=None)


def cached_values(text: Any) -> int:
    """The number of values that one token adds to the cache (keys and values of all layers), by the configuration."""
    heads = text.num_attention_heads
    if getattr(text, "kv_lora_rank", None):  # DeepSeek caches compressed keys and values
        return int(text.num_hidden_layers * (text.kv_lora_rank + text.qk_rope_head_dim))
    kv_heads = getattr(text, "num_key_value_heads", None) or getattr(text, "num_kv_heads", None) or heads
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        kv_heads = 1  # Falcon 7B, StarCoder
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return int(2 * text.num_hidden_layers * kv_heads * size)
