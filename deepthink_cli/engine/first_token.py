"""The weight of a memory's first token in plain passes of a network, which continue from a cache.

ZeroTuning (Han et al. 2025, arXiv:2505.11739): the attention weight a_0 of the first token becomes g a_0 / D, every
other weight a_i / D, with D = (g - 1) a_0 + 1. This is log g added to the first token's attention score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from deepthink_cli.engine.attention import refuse_unknown
from deepthink_cli.engine.kernels import Attention
from deepthink_cli.engine.reach import UnsupportedAttention
from deepthink_cli.errors import InputError, option

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "deepthink_first_token"


@dataclass
class _Pass:
    """The logarithm of the weight in a pass, and whether a layer has used it."""

    bias: float
    used: bool = False


_current: ContextVar[_Pass | None] = ContextVar("current", default=None)


@contextmanager
def weighted(network: PreTrainedModel, weight: float) -> Iterator[None]:
    """Inside the block the first key of every cache has this weight in attention, for all heads and layers.

    The caller holds the model's lock: the network's configuration is changed until the block ends. Nothing changes for
    a weight of 1. Raises InputError, naming the network, if its attention cannot be weighted.
    """
    if weight == 1:
        yield
        return
    config = network.config.get_text_config(decoder=True)
    before, current = config._attn_implementation, _Pass(math.log(weight))
    token = _current.set(current)
    try:
        config._attn_implementation = _NAME
        yield
        if not current.used:
            raise UnsupportedAttention("its attention is custom code")
    except UnsupportedAttention as error:
        raise InputError(
            f"{type(network).__name__}: the weight of the memory's first token cannot be applied: {error}; remove it "
            f"with deepthink calibrate MEMORY {option('first_token')} 1"
        ) from error
    finally:
        config._attn_implementation = before
        _current.reset(token)


def _attend(
    module: torch.nn.Module,
    query_RHTD: Tensor,
    key_RGLD: Tensor,
    value_RGLD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention output (R, T, H, D), with a bias on the first key; `s_aux` as in `attention.attend`."""
    current = _current.get()
    if current is None:
        raise RuntimeError("another thread is using this network; run it while holding LanguageModel.lock")
    refuse_unknown(others)
    if attention_mask is None or attention_mask.shape[-1] != key_RGLD.shape[2]:
        raise UnsupportedAttention("its attention mask is custom code")
    current.used = True
    mask_R1TL = attention_mask.to(query_RHTD.dtype, copy=True)
    mask_R1TL[..., 0] += current.bias
    scale = query_RHTD.shape[-1] ** -0.5 if scaling is None else scaling
    out_RHTD, lse_RHT = Attention(scale, softcap)(query_RHTD, key_RGLD, value_RGLD, mask_R1TL)
    if s_aux is not None:
        out_RHTD = out_RHTD * torch.sigmoid(lse_RHT - s_aux[:, None])[..., None].to(out_RHTD.dtype)
    return out_RHTD.transpose(1, 2).contiguous(), None


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, eager_mask)
