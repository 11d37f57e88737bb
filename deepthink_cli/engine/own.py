"""Attention of the rows of a pass to themselves, padded, in one call for each block of rows of similar lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from deepthink_cli.engine.kernels import Attention
from deepthink_cli.engine.packing import Block, part_of


@dataclass(frozen=True)
class Own:
    """Attention of the rows of a pass to themselves: blocks of padded rows, a call for each block."""

    blocks: tuple[_PaddedBlock, ...]

    @classmethod
    def of(cls, blocks: Sequence[Block], like: Tensor) -> Own:
        """The attention of all blocks, planned for the device and the dtype of `like`."""
        return cls(tuple(_PaddedBlock.of(block, like) for block in blocks))

    def __call__(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, attention: Attention
    ) -> tuple[Tensor, Tensor]:
        """out_THD and its log-sum-exp lse_TH, from the queries, keys and values of the pass."""
        parts = [block(query_THD, key_TGD, value_TGD, attention) for block in self.blocks]
        if len(parts) == 1:
            return parts[0]
        outs, lses = zip(*parts, strict=True)
        return torch.cat(outs), torch.cat(lses)


@dataclass(frozen=True)
class _PaddedBlock:
    """Rows of a block with indices of their tokens: R rows, padded to S tokens, from token `start` to `stop` - 1.

    `places_P`, P = R S, are the tokens of the padded rows; `kept_T` are the places of the real tokens among them. Both
    are None if all rows are equally long. `mask_R1SS` is added to attention scores; None if a causal mask is enough.
    """

    start: int
    stop: int
    rows: int
    places_P: Tensor | None
    kept_T: Tensor | None
    mask_R1SS: Tensor | None

    @classmethod
    def of(cls, block: Block, like: Tensor) -> _PaddedBlock:
        """The block with the device and the dtype of `like`."""
        hidden_RSS, lengths = block.hidden_RSS(), [*map(len, block.depths)]
        mask_R1SS = None if hidden_RSS is None else masked(hidden_RSS[:, None], like)
        places_P = kept_T = None
        if min(lengths) < block.size:
            starts_R, lengths_R = torch.tensor([*accumulate(lengths[:-1], initial=block.start)]), torch.tensor(lengths)
            order_S = torch.arange(block.size)
            places_RS = starts_R[:, None] + torch.minimum(order_S, lengths_R[:, None] - 1)
            places_P = places_RS.flatten().to(like.device)
            kept_T = (order_S < lengths_R[:, None]).flatten().nonzero()[:, 0].to(like.device)
        return cls(block.start, block.stop, len(lengths), places_P, kept_T, mask_R1SS)

    def __call__(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, attention: Attention
    ) -> tuple[Tensor, Tensor]:
        """One call of a kernel; the output of padding is dropped."""
        query_RHSD, key_RGSD, value_RGSD = map(self._rows, (query_THD, key_TGD, value_TGD))
        out_RHSD, lse_RHS = attention(query_RHSD, key_RGSD, value_RGSD, self.mask_R1SS, self.mask_R1SS is None)
        out_PHD, lse_PH = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (out_RHSD, lse_RHS))
        if self.kept_T is None:
            return out_PHD, lse_PH
        return out_PHD.index_select(0, self.kept_T), lse_PH.index_select(0, self.kept_T)

    def _rows(self, states_TnD: Tensor) -> Tensor:
        """The padded rows (R, n, S, D); a view if they are equally long."""
        if self.places_P is None:
            part_PnD = part_of(states_TnD, 0, self.start, self.stop)
        else:
            part_PnD = states_TnD.index_select(0, self.places_P)
        return part_PnD.view(self.rows, -1, *part_PnD.shape[1:]).transpose(1, 2)


def masked(hidden: Tensor, like: Tensor) -> Tensor:
    """A mask to add to attention scores: -inf where hidden, else 0; with the device and the dtype of `like`."""
    hidden = hidden.to(like.device)
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)
