"""A writer of llama.cpp's sequence states, after its source, sharing no code with the package."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from deepthink_cli import Memory

GGML = {"f32": 0, "f16": 1, "bf16": 30}


def encoded(values: Tensor, kind: str) -> bytes:
    """Numbers as ggml stores them."""
    if kind == "bf16":
        return values.to(torch.bfloat16).contiguous().view(torch.int16).numpy().astype("<i2").tobytes()
    return values.contiguous().numpy().astype({"f32": "<f4", "f16": "<f2"}[kind]).tobytes()


def paired(keys: Tensor) -> Tensor:
    """Keys (kv_heads, L, head_dim) in the order of the architecture `llama`: value i of half h at 2i + h."""
    half = keys.shape[2] // 2
    order = [half * h + i for i in range(half) for h in (0, 1)]
    return keys[:, :, order]


def state(
    memory: Memory,
    tokens: Sequence[int],
    version: int = 4,
    kind: str = "f32",
    norm: bool = True,
    transposed: bool = False,
    positions: Sequence[int] | None = None,
    **changes: Any,
) -> bytes:
    """The file that llama.cpp would write after reading `tokens`, with the memory as their keys and values.

    `norm` orders keys as the architecture `llama` has them; `transposed` writes values as without flash attention.
    """
    words = [0x67677371, version, len(tokens), *tokens, changes.get("streams", 1)]
    places = range(memory.length) if positions is None else positions
    words += [len(places), *(word for place in places for word in (place, 1, changes.get("sequence", 0)))]
    words += [
        int(transposed),
        changes.get("layers", len(memory.keys)),
        *([0, changes.get("rotated", 0)] * (version >= 4)),
    ]
    parts = [numpy.array(words, dtype="<i8").astype("<u4").tobytes()]
    number = changes.get("type", GGML[kind])
    for keys in memory.keys:
        rows = (paired(keys) if norm else keys).transpose(0, 1).flatten(1)
        parts += [struct.pack("<iQ", number, len(encoded(rows[0], kind))), encoded(rows, kind)]
    for values in memory.values:
        rows = values.transpose(0, 1).flatten(1)
        if transposed:
            parts += [
                struct.pack("<iII", number, len(encoded(rows[0, :1], kind)), rows.shape[1]),
                encoded(rows.T, kind),
            ]
        else:
            parts += [struct.pack("<iQ", number, len(encoded(rows[0], kind))), encoded(rows, kind)]
    return b"".join(parts)


def server_tokens(tokens: Sequence[int]) -> list[int]:
    """Token ids as llama-server writes them since 2026: a mark, a version, their number, the ids, and no media."""
    return [0xFFFFFFFF, 1, len(tokens), *tokens, 0]
