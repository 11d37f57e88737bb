"""Pocket's network, a small Llama started close to looking things up, and what it is asked for."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from episodes import Batch

CONTEXT = 4096
READING_LAYERS, LAYERS = 3, 7  # the first look at one text; those above bind its class to a label word


def build_network(vocabulary: int, bos: int, layers: int) -> LlamaForCausalLM:
    """A random Llama of a given depth, its attention near the identity."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=384,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=bos,
        eos_token_id=bos,
        initializer_range=0.04,
    )
    network = LlamaForCausalLM(config)
    start_near_identity(network, 0.5)
    return network


@torch.no_grad()
def put_reader_below(network: LlamaForCausalLM, reader: LlamaForCausalLM) -> None:
    """Give the network the reader's embedding and layers, and keep them as they are."""
    network.model.embed_tokens.load_state_dict(reader.model.embed_tokens.state_dict())
    network.model.norm.load_state_dict(reader.model.norm.state_dict())
    for mine, given in zip(network.model.layers, reader.model.layers, strict=False):
        mine.load_state_dict(given.state_dict())
        mine.requires_grad_(False)
    network.model.embed_tokens.requires_grad_(False)


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


def reading_loss(reader: LlamaForCausalLM, batch: Batch, dropout: float) -> tuple[Tensor, dict[str, float]]:
    """The reader is asked, through the output embedding, for the class's own name.

    The name is the class's word, or for classes of real texts a token reserved for it. It is asked where
    the label will be asked and where the label stands, so a text looks to the layers above like one word.
    """
    embedded = F.dropout(reader.model.embed_tokens(batch.ids), dropout)
    hidden = reader.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
    rows, places = batch.asked.T
    logits = reader.lm_head(F.dropout(torch.cat([hidden[rows, places], hidden[rows, places + 1]]), dropout))
    names = batch.name.repeat(2)
    total = F.cross_entropy(logits, names)
    return total, {"name": total.item(), "right": (logits.argmax(1) == names).float().mean().item()}


def binding_loss(network: LlamaForCausalLM, batch: Batch, dropout: float) -> tuple[Tensor, dict[str, float]]:
    """The label is asked for: among the episode's words, in the whole vocabulary, and a little of the text."""
    embedded = F.dropout(network.model.embed_tokens(batch.ids), dropout)
    hidden = network.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
    logits, told = network.lm_head(hidden[tuple(batch.asked.T)]), batch.told  # (M, V)
    options = logits.gather(1, batch.options.clamp(min=0)).masked_fill(batch.options < 0, -math.inf)  # (M, 6)
    parts = {
        "choice": F.cross_entropy(options[told], batch.right[told]),
        "label": F.cross_entropy(logits[told], batch.answer[told]),
        "text": _text_loss(network, hidden, batch.ids),
    }
    figures = {name: part.item() for name, part in parts.items()}
    figures["right"] = (options[told].argmax(1) == batch.right[told]).float().mean().item()
    return parts["choice"] + 0.25 * parts["label"] + 0.1 * parts["text"], figures


def _text_loss(network: LlamaForCausalLM, hidden: Tensor, ids: Tensor) -> Tensor:
    """Language-model loss on an eighth of the positions: only those go through the vocabulary."""
    chosen = torch.rand(ids[:, 1:].shape) < 0.125
    return F.cross_entropy(network.lm_head(hidden[:, :-1][chosen]), ids[:, 1:][chosen])
