"""The size of passes: the number of tokens that is fastest, and the bytes that fit a device's free memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from deepthink_cli.engine.kernels import kernel_of
from deepthink_cli.engine.logits import SLICE
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.memory import Memory
from deepthink_cli.model.families import window_sizes

FEWEST_TOKENS, _CPU_TOKENS, _CUDA_TOKENS = 256, 1024, 16384  # tokens of a pass; more are not faster
KEPT = 32 * 2**20 - 2**16  # bytes of the largest tensor that glibc's allocator keeps for the next pass
_CGROUP = Path("/sys/fs/cgroup")


def byte_budget(device: torch.device) -> int:
    """Bytes that passes and memories may take: half of the device's free memory, rounded down to a power of two.

    With the rounding, a job on a machine is always split into the same passes, and has the same results.
    """
    return 1 << (max(1, _free(device) // 2).bit_length() - 1)


def best_tokens(model: LanguageModel) -> int:
    """The number of tokens at which a scoring pass is fastest, limited by the device's memory."""
    if model.device.type != "cuda":
        best = min(_CPU_TOKENS, KEPT // (widest(model) * model.dtype.itemsize))
    else:
        # Several tensors as large as the widest activation of a layer.
        best = min(
            _CUDA_TOKENS, byte_budget(model.device) // (8 * widest(model) * model.dtype.itemsize + head_bytes(model))
        )
    return max(FEWEST_TOKENS, best)


def tokens_over(model: LanguageModel, memory: Memory, width: int, free: int) -> int:
    """The number of tokens of a packed pass over a memory of L tokens that fit `free` bytes; at least 1.

    No row has more than `width` tokens.
    """
    config: Any = model.network.config.get_text_config(decoder=True)
    equal = all(key.shape[2] == value.shape[2] for key, value in zip(memory.keys, memory.values, strict=True))
    plain = (
        equal and getattr(config, "attn_logit_softcapping", None) is None and kernel_of(model.device.type) is not None
    )
    folded = model.device.type != "cuda" or memory.keys[0].shape[2] % 8 == 0  # head sizes that the kernel supports
    # Without a kernel, scores and weights (T, heads, keys) exist in float32 and again in the model's dtype.
    scores = attention_heads(model, memory) * (2 * 4 + model.dtype.itemsize)
    attention = 0 if plain and folded else scores * memory.length
    if window_sizes(config):  # a mask for the row, and a mask for the keys that only some of its tokens attend to
        masked_by_kernel = plain and model.device.type == "cpu"
        attention += 2 * width * (model.dtype.itemsize + (0 if masked_by_kernel else scores))
    return max(1, free // max(1, attention + head_bytes(model)))


def rows_over(model: LanguageModel, memory: Memory, width: int, free: int) -> int:
    """The number of padded rows of `width` tokens, each with a copy of the memory, in `free` bytes; at least 1."""
    length, itemsize = memory.length + width, model.dtype.itemsize
    copy = itemsize * length * sum(tensor.shape[0] * tensor.shape[2] for tensor in (*memory.keys, *memory.values))
    # Attention without a kernel stores scores and weights (heads, width, length) of one layer at a time.
    attention = attention_heads(model, memory) * width * length * (2 * 4 + itemsize)
    return max(1, free // (copy + attention + width * head_bytes(model)))


def widest(model: LanguageModel) -> int:
    """Size of the widest activation of a layer."""
    layers: Any = model.network.base_model.modules()
    return max(getattr(layer, "out_features", getattr(layer, "nf", 1)) for layer in layers)


def attention_heads(model: LanguageModel, memory: Memory) -> int:
    """The attention heads of a layer, from the configuration, or from its keys."""
    config: Any = model.network.config.get_text_config(decoder=True)
    return getattr(config, "num_attention_heads", None) or memory.keys[0].shape[0]


def head_bytes(model: LanguageModel) -> int:
    """Bytes that one token takes between the last layer and its log-probabilities."""
    if model.head is not None:
        return 4 * SLICE * 4  # the vocabulary is processed in slices
    return model.known_tokens * (model.dtype.itemsize + 2 * 4)


def _free(device: torch.device) -> int:
    """Free bytes of a device's memory that this process may use."""
    if device.type == "cuda":
        unused, _ = torch.cuda.mem_get_info(device)
        return unused + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        limit, used = ((_CGROUP / name).read_text() for name in ("memory.max", "memory.current"))
        free = min(free, int(limit) - int(used))  # the container's limit, if it has one
    except (OSError, StopIteration, ValueError):
        pass
    return max(0, free)
