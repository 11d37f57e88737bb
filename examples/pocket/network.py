"""Pocket's network and what it is asked for: a small Llama, started close to looking things up."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from episodes import Batch

CONTEXT = 4096
READING_LAYERS = 3  # layers below look at one text; those above bind its class to a label word


def build_network(vocabulary: int, bos: int) -> LlamaForCausalLM:
    """A random Llama of 2.5 million parameters, its attention near the identity."""
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=128, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=384, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        bos_token_id=bos, eos_token_id=bos, initializer_range=0.04,
    )  # fmt: skip
    network = LlamaForCausalLM(config)
    start_near_identity(network, 0.5)
    return network


@torch.no_grad()
def start_near_identity(network: LlamaForCausalLM, strength: float) -> None:
    """Let every head begin as "attend to what is alike, and copy it": W_q, W_k, W_v and W_o near the identity.

    The idea is mimetic initialisation (Trockman and Kolter 2023); without it the binding of a word to a
    label appears much later.
    """
    identity = torch.eye(network.config.hidden_size)
    for layer in network.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weight = getattr(layer.self_attn, name).weight
            weight.mul_(0.5).add_(strength * identity)


def loss(network: LlamaForCausalLM, batch: Batch, dropout: float) -> tuple[Tensor, dict[str, float]]:
    """The training loss, and its parts as figures, with the share of right answers among the options."""
    embedded = F.dropout(network.model.embed_tokens(batch.ids), dropout)
    out = network.model(inputs_embeds=embedded, output_hidden_states=True, use_cache=False)
    logits, told = network.lm_head(out.last_hidden_state[tuple(batch.asked.T)]), batch.told  # (M, V)
    options = logits.gather(1, batch.options.clamp(min=0)).masked_fill(batch.options < 0, -math.inf)  # (M, 6)
    parts = {
        "choice": F.cross_entropy(options[told], batch.right[told]),
        "label": F.cross_entropy(logits[told], batch.answer[told]),
        "text": _text_loss(network, out.last_hidden_state, batch.ids),
        "name": _name_loss(network, out.hidden_states[READING_LAYERS], batch),
    }
    total = parts["choice"] + 0.25 * parts["label"] + 0.15 * parts["text"] + parts["name"]
    figures = {name: part.item() for name, part in parts.items()}
    figures["right"] = (options[told].argmax(1) == batch.right[told]).float().mean().item()
    return total, figures


def _text_loss(network: LlamaForCausalLM, hidden: Tensor, ids: Tensor) -> Tensor:
    """Language-model loss on an eighth of the positions: only those go through the vocabulary."""
    chosen = torch.rand(ids[:, 1:].shape) < 0.125
    return F.cross_entropy(network.lm_head(hidden[:, :-1][chosen]), ids[:, 1:][chosen])


def _name_loss(network: LlamaForCausalLM, middle: Tensor, batch: Batch) -> Tensor:
    """The reading layers are asked, through the output embedding, for the class's own name.

    The name is the class's word, or for classes of real texts a token reserved for it. It is asked where
    the label will be asked and where the label stands, so a text looks to the layers above like one word.
    """
    rows, places = batch.asked.T
    both = torch.cat([middle[rows, places], middle[rows, places + 1]])
    return F.cross_entropy(network.lm_head(network.model.norm(both)), batch.name.repeat(2))
