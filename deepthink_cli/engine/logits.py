"""From hidden states to float32 logits, whatever the compute dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import DynamicCache

from deepthink_cli.engine.products import linear
from deepthink_cli.model.families import cache_argument

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

HeadKind = Literal["none", "float32", "half"]  # see `Head`; none: the model computes its own logits
SLICE = 8192  # vocabulary rows converted to float32 at a time
_SUMMING = 1e-5  # relative difference of sums of the same float32 products in another order
MASKED = 100.0  # nats below the largest logit, to which smaller logits are clamped before a comparison


class Head:
    """A model's output embedding, applied in float32.

    A half-precision model rounds its own logits, which causes ties and changes ranks (docs/concepts.md). So its
    embedding is converted to float32, in slices in every pass, or once (`keep_float32`). With `in_half`, the factors
    stay in half precision, and their products, which are exact in float32, are summed in float32; not every device can.
    """

    def __init__(self, embedding: torch.nn.Linear, config: Any, in_half: bool = False) -> None:
        self.embedding = embedding
        self.config = config
        self.in_half = in_half
        self._kept_VW: Tensor | None = None

    @property
    def copy_bytes(self) -> int:
        """The additional bytes that `keep_float32` would take."""
        weight_VW = self.embedding.weight
        needed = weight_VW.dtype != torch.float32 and self._kept_VW is None and not self.in_half
        return 4 * weight_VW.numel() if needed else 0

    def keep_float32(self, most: int) -> None:
        """Keep a float32 copy of the embedding, which must not change afterwards, if it takes at most `most` bytes."""
        if 0 < self.copy_bytes <= most:
            self._kept_VW = self.embedding.weight.float()

    def __call__(self, hidden_MW: Tensor) -> Tensor:
        """Logits (M, V) in float32 of hidden states."""
        return torch.cat(list(self._slices(hidden_MW)), dim=-1)

    def log_probabilities(self, hidden_MW: Tensor, asked_N: Tensor, tokens_N: Tensor) -> Tensor:
        """Float32 log-probabilities (N,) of `tokens_N` after the hidden states `hidden_MW[asked_N]`."""
        weight_VW, bias_V = self.embedding.weight, self.embedding.bias
        hidden_MW, asked_N, tokens_N = (
            hidden_MW.to(weight_VW.device),
            asked_N.to(weight_VW.device),
            tokens_N.to(weight_VW.device),
        )
        chosen_N = (hidden_MW[asked_N].float() * weight_VW[tokens_N].float()).sum(-1)
        chosen_N = self._scaled(chosen_N if bias_V is None else chosen_N + bias_V[tokens_N].float())
        total_M = torch.stack([_log_sum_exp(logits) for logits in self._slices(hidden_MW)]).logsumexp(0)
        return chosen_N - total_M[asked_N]

    def likeliest(self, hidden_MW: Tensor) -> Tensor:
        """The most probable next token (M,) after each of the hidden states."""
        best = [logits_MV.max(-1) for logits_MV in self._slices(hidden_MW)]
        part_M = torch.stack([values_M for values_M, _ in best]).argmax(0)
        tokens_PM = torch.stack([number * SLICE + tokens_M for number, (_, tokens_M) in enumerate(best)])
        return tokens_PM.gather(0, part_M[None])[0]

    def _slices(self, hidden_MW: Tensor) -> Iterator[Tensor]:
        weight_VW = self.embedding.weight if self._kept_VW is None else self._kept_VW
        bias_V = self.embedding.bias
        hidden_MW = hidden_MW.to(weight_VW.device, weight_VW.dtype if self.in_half else torch.float32)
        product = summed_in_float32 if self.in_half else linear
        # In slices, so that neither the logits of the whole vocabulary nor a whole float32 embedding exist at once.
        for start in range(0, len(weight_VW), SLICE):
            part = slice(start, start + SLICE)
            part_VW = weight_VW[part] if self.in_half else weight_VW[part].float()
            yield self._scaled(product(hidden_MW, part_VW, None if bias_V is None else bias_V[part].float()))

    def _scaled(self, logits: Tensor) -> Tensor:
        scale = getattr(self.config, "logit_scale", None)  # Cohere
        divisor = getattr(self.config, "logits_scaling", None)  # Granite
        cap = getattr(self.config, "final_logit_softcapping", None)  # Gemma 2
        logits = logits if scale is None else logits * scale
        logits = logits if divisor is None else logits / divisor
        return logits if cap is None else torch.tanh(logits / cap) * cap


def summed_in_float32(hidden_MW: Tensor, weight_VW: Tensor, bias_V: Tensor | None) -> Tensor:
    """`F.linear` of half-precision factors in float32; raises RuntimeError on a device that has no such product."""
    logits_MV = torch.mm(hidden_MW, weight_VW.T, out_dtype=torch.float32)
    return logits_MV if bias_V is None else logits_MV + bias_V


def _log_sum_exp(logits_MV: Tensor) -> Tensor:
    """Log-sum-exp (M,) of logits, twice as fast as torch.logsumexp: log_softmax is a single kernel.

    It is computed at the largest logit, where it is exact up to rounding; a masked logit (-1e9, -inf) loses precision.
    """
    largest_M = logits_MV.amax(-1)
    total_M = largest_M - logits_MV.log_softmax(-1).amax(-1)
    return torch.where(largest_M == -torch.inf, largest_M, total_M)  # log_softmax is NaN if all are masked


@torch.inference_mode()
def float32_head(network: PreTrainedModel, token_ids: Sequence[int], known: HeadKind | None = None) -> Head | None:
    """The float32 head of a model, or None if its logits after `token_ids` differ from the model's own.

    A `known` kind is not tried again.
    """
    body: Any = network.base_model
    embedding = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    if known == "none" or not isinstance(embedding, torch.nn.Linear) or embedding.weight.is_meta:  # meta: offloaded
        return None
    config = network.config.get_text_config(decoder=True)
    head = Head(embedding, config, in_half=known == "half")
    if known is not None:
        return head
    ids_1S = torch.tensor([token_ids], device=network.device)
    past = {cache_argument(body.forward) or "past_key_values": DynamicCache()}
    states_SW = body(input_ids=ids_1S, use_cache=True, **past).last_hidden_state[0]
    ours_SV = head(states_SW)
    own_SV = network(input_ids=ids_1S).logits[0].to(ours_SV)  # to the head's device: the network may use several
    # A masked vocabulary row (-1e9, -inf) would dominate the comparison.
    floor_S1 = own_SV.amax(-1, keepdim=True) - MASKED
    ours_SV, own_SV = ours_SV.maximum(floor_S1), own_SV.maximum(floor_S1)
    rounding = max(1e-4, 4 * torch.finfo(network.dtype).eps)
    if not torch.linalg.vector_norm(ours_SV - own_SV) <= rounding * torch.linalg.vector_norm(own_SV):
        return None
    if embedding.weight.dtype == torch.float32 or states_SW.dtype != embedding.weight.dtype:
        return head
    in_half, expected_SV = Head(embedding, config, in_half=True), head(states_SW)
    try:
        difference = torch.linalg.vector_norm(in_half(states_SW) - expected_SV)
    except (RuntimeError, TypeError):  # the device lacks this product
        return head
    return in_half if difference <= _SUMMING * torch.linalg.vector_norm(expected_SV) else head
