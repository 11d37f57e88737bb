"""From hidden states to logits in float32, whatever the model computes in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

SLICE = 8192  # vocabulary rows brought to float32 at a time
MASKED = 100.0  # nats below the largest logit; smaller logits are compared as if they were this


class Head:
    """A model's output embedding, applied in float32.

    A model in half precision rounds its own logits, which makes ties and flips (docs/concepts.md).
    """

    def __init__(self, embedding: torch.nn.Linear, config: Any) -> None:
        self.embedding = embedding
        self.config = config

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits (M, vocabulary) in float32 of hidden states (M, width)."""
        return torch.cat(list(self._slices(hidden)), dim=-1)

    def log_probabilities(self, hidden: Tensor, asked: Tensor, tokens: Tensor) -> Tensor:
        """Float32 log-probabilities (N,) of `tokens` (N,) after hidden[asked], of hidden states (M, width)."""
        weight, bias = self.embedding.weight, self.embedding.bias
        hidden, asked, tokens = hidden.to(weight.device), asked.to(weight.device), tokens.to(weight.device)
        chosen = (hidden[asked].float() * weight[tokens].float()).sum(-1)
        chosen = self._scaled(chosen if bias is None else chosen + bias[tokens].float())
        total = torch.stack([_log_sum_exp(logits) for logits in self._slices(hidden)]).logsumexp(0)  # (M,)
        return chosen - total[asked]

    def _slices(self, hidden: Tensor) -> Iterator[Tensor]:
        weight, bias = self.embedding.weight, self.embedding.bias
        hidden = hidden.to(weight.device, torch.float32)
        # Sliced, so that a float32 copy of the whole embedding never stands beside a half-precision model.
        for start in range(0, len(weight), SLICE):
            part = slice(start, start + SLICE)
            yield self._scaled(F.linear(hidden, weight[part].float(), None if bias is None else bias[part].float()))

    def _scaled(self, logits: Tensor) -> Tensor:
        scale = getattr(self.config, "logit_scale", None)  # Cohere
        divisor = getattr(self.config, "logits_scaling", None)  # Granite
        cap = getattr(self.config, "final_logit_softcapping", None)  # Gemma 2
        logits = logits if scale is None else logits * scale
        logits = logits if divisor is None else logits / divisor
        return logits if cap is None else torch.tanh(logits / cap) * cap


def _log_sum_exp(logits: Tensor) -> Tensor:
    """logsumexp (M,) of logits (M, V) in half the time: log_softmax is one kernel, logsumexp several.

    Computed from the largest logit, where it is exact up to rounding; from a masked one (-1e9, -inf) it would be lost.
    """
    largest = logits.amax(-1)
    total = largest - logits.log_softmax(-1).amax(-1)
    return torch.where(largest == -torch.inf, largest, total)  # log_softmax is NaN where all are masked


@torch.inference_mode()
def float32_head(network: PreTrainedModel, token_ids: Sequence[int]) -> Head | None:
    """The float32 head of a model, or None where its logits after `token_ids` differ from the model's own."""
    body: Any = network.base_model
    embedding = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    if not isinstance(embedding, torch.nn.Linear) or embedding.weight.is_meta:  # meta: offloaded
        return None
    head = Head(embedding, network.config.get_text_config(decoder=True))
    ids = torch.tensor([token_ids], device=network.device)
    ours = head(body(input_ids=ids, past_key_values=DynamicCache(), use_cache=True).last_hidden_state[0])
    own = network(input_ids=ids).logits[0].to(ours)  # to the head's device: the network may be spread over several
    # Otherwise a masked vocabulary row (-1e9, -inf) would dominate the comparison.
    floor = own.amax(-1, keepdim=True) - MASKED
    ours, own = ours.maximum(floor), own.maximum(floor)
    rounding = max(1e-4, 4 * torch.finfo(network.dtype).eps)
    return head if torch.linalg.vector_norm(ours - own) <= rounding * torch.linalg.vector_norm(own) else None
