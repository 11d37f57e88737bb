"""What GPUs have and a processor has not, computed here by hand: an attention kernel, and recordings of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def varlen_by_hand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: varlen.AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What torch documents of `varlen_attn`, sequence by sequence in float64; causal masks end at the last key."""
    assert cu_seq_k is not None
    assert return_aux is not None
    assert return_aux.lse
    assert (enable_gqa, seqused_k, block_table, num_splits) == (True, None, None, None)
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert int(cu_seq_q[-1]) == len(query)
    assert int(cu_seq_k[-1]) <= len(key)
    assert max_q >= int(cu_seq_q.diff().max())
    assert max_k >= int(cu_seq_k.diff().max())
    groups = query.shape[1] // key.shape[1]
    out, lse = torch.empty_like(query), torch.empty(query.shape[1], len(query))
    for (first, last), (start, stop) in zip(bounds(cu_seq_q), bounds(cu_seq_k), strict=True):
        q, k, v = query[first:last].double(), key[start:stop].double(), value[start:stop].double()
        scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(groups, 1)) * (scale or 0.0)
        if window_size == (-1, 0):
            scores += torch.full(scores.shape[1:], -torch.inf).triu(stop - start - (last - first) + 1)
        out[first:last] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.repeat_interleave(groups, 1)).to(out)
        lse[:, first:last] = scores.logsumexp(-1)
    return out, lse


def bounds(cumulative: Tensor) -> Iterator[tuple[int, int]]:
    return zip(cumulative.tolist(), cumulative.tolist()[1:], strict=False)


@torch.library.custom_op("stand_in::varlen", mutates_args=())
def _one_operation(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    key_bounds: Tensor,
    most: int,
    most_keys: int,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    return varlen_by_hand(
        query,
        key,
        value,
        bounds,
        key_bounds,
        most,
        most_keys,
        return_aux=varlen.AuxRequest(lse=True),
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
        enable_gqa=True,
    )


def varlen_in_one(*given: Any, scale: float, window_size: tuple[int, int], **_: Any) -> tuple[Tensor, Tensor]:
    """`varlen_by_hand` as a single operation, which may be recorded: it looks at the lengths whenever it runs."""
    out, lse = _one_operation(*given, scale, window_size == (-1, 0))
    return out, lse


class Recorder(TorchDispatchMode):
    """A recording in the manner of a CUDA graph: the operations with the tensors and the numbers of that moment.

    `repeat` runs them again, into the same tensors; what Python decided by a value stays as it was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, found))
        return found

    def repeat(self) -> None:
        """Run the operations again."""
        for function, args, kwargs, found in self.operations:
            again = function(*args, **kwargs)
            for to, tensor in zip(tree_leaves(found), tree_leaves(again), strict=True):
                if isinstance(to, Tensor) and to.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():
                    to.copy_(tensor)


def record(run: Callable[[], list[Tensor]]) -> tuple[Callable[[], object], list[Tensor]]:
    """What `deepthink_cli.engine.replay.record` does on a GPU."""
    with Recorder() as recorder:
        found = run()
    return recorder.repeat, found
