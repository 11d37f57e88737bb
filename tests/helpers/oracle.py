"""The paper's equations 2 to 6 in numpy and float64, written from the paper and sharing no code with the package.

A tiny Llama, a tiny Mistral and a tiny GPT-2 are computed from their weights: projections (Eq. 2), attention over
[history ; present] (Eq. 3), the gate (Eq. 4), and candidates scored after the memory (Eq. 1 and 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Layers = list[tuple[Array, Array]]  # (keys, values), each (heads, tokens, size)


class Oracle:
    """A causal language model as numpy arrays; subclasses know one architecture each."""

    def __init__(self, network: Any) -> None:
        self.config = network.config
        self.weights = {name: value.double().numpy() for name, value in network.state_dict().items()}

    def forward(self, ids: Sequence[int], positions: Sequence[int], past: Layers | None) -> tuple[Array, Layers]:
        """Logits (S, V) and the present keys and values of every layer."""
        raise AssertionError("an architecture computes this")

    def think(self, ids: Sequence[int], iterations: int, eta: float, momentum: float, restarted: bool) -> list[Layers]:
        """The memory after every reading."""
        length = len(ids)
        _, history = self.forward(ids, range(length), None)
        memories = [history]
        push = [(np.zeros_like(k), np.zeros_like(v)) for k, v in history]
        for _ in range(iterations - 1):
            start = 0 if restarted else length
            _, present = self.forward(ids, range(start, start + length), history)
            push = [
                (k1 - k0 + momentum * pk, v1 - v0 + momentum * pv)
                for (k0, v0), (k1, v1), (pk, pv) in zip(history, present, push, strict=True)
            ]
            history = [(k + eta * pk, v + eta * pv) for (k, v), (pk, pv) in zip(history, push, strict=True)]
            memories.append(history)
        return memories

    def score(self, memory: Layers, query: Sequence[int], answer: Sequence[int]) -> float:
        """Log-probability of the answer's tokens after the memory and the query."""
        start = memory[0][0].shape[1]
        ids = [*query, *answer]
        logits, _ = self.forward(ids, range(start, start + len(ids)), memory)
        rows = logits - logits.max(-1, keepdims=True)
        log_p = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
        return float(sum(log_p[len(query) - 1 + n, token] for n, token in enumerate(answer)))


def attend(
    q: Array, k: Array, v: Array, past: tuple[Array, Array] | None, window: int | None = None
) -> tuple[Array, Array, Array]:
    """Causal attention to [history ; present], of the last `window` tokens; heads (H, S, D), K/V heads may be fewer."""
    mixed_k, mixed_v = (k, v) if past is None else (np.concatenate([past[0], k], 1), np.concatenate([past[1], v], 1))
    groups = q.shape[0] // k.shape[0]
    scores = q @ np.repeat(mixed_k, groups, 0).transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    total, own = mixed_k.shape[1], k.shape[1]
    behind = np.arange(own)[:, None] + total - own - np.arange(total)[None]
    scores = np.where((behind < 0) | (behind >= (window or total)), -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = weights / weights.sum(-1, keepdims=True) @ np.repeat(mixed_v, groups, 0)
    return out.transpose(1, 0, 2).reshape(own, -1), k, v


def heads(x: Array, count: int) -> Array:
    """(S, H * D) to (H, S, D)."""
    return x.reshape(len(x), count, -1).transpose(1, 0, 2)


class LlamaOracle(Oracle):
    """RMS norms, rotary positions, grouped heads, gated feed-forward; Mistral with a window in every layer."""

    def forward(self, ids: Sequence[int], positions: Sequence[int], past: Layers | None) -> tuple[Array, Layers]:
        c, w = self.config, self.weights
        x = w["model.embed_tokens.weight"][list(ids)]
        present: Layers = []
        for n in range(c.num_hidden_layers):
            at = f"model.layers.{n}."
            y = self._norm(x, w[at + "input_layernorm.weight"])
            q, k, v = (y @ w[f"{at}self_attn.{p}_proj.weight"].T for p in "qkv")
            q = self._rotate(heads(q, c.num_attention_heads), positions)
            k = self._rotate(heads(k, c.num_key_value_heads), positions)
            v, window = heads(v, c.num_key_value_heads), getattr(c, "sliding_window", None)
            out, k, v = attend(q, k, v, past[n] if past else None, window)
            present.append((k, v))
            x = x + out @ w[at + "self_attn.o_proj.weight"].T
            y = self._norm(x, w[at + "post_attention_layernorm.weight"])
            gate, up = (y @ w[f"{at}mlp.{p}_proj.weight"].T for p in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.down_proj.weight"].T
        return self._norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T, present

    def _norm(self, x: Array, scale: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config.rms_norm_eps) * scale

    def _rotate(self, x: Array, positions: Sequence[int]) -> Array:
        half = x.shape[-1] // 2
        theta = self.config.rope_parameters["rope_theta"]
        angle = np.outer(list(positions), theta ** (-np.arange(half) / half))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


class GPT2Oracle(Oracle):
    """Layer norms, learned positions, one head size, tanh-approximated GELU."""

    def forward(self, ids: Sequence[int], positions: Sequence[int], past: Layers | None) -> tuple[Array, Layers]:
        c, w = self.config, self.weights
        x = w["transformer.wte.weight"][list(ids)] + w["transformer.wpe.weight"][list(positions)]
        present: Layers = []
        for n in range(c.n_layer):
            at = f"transformer.h.{n}."
            q, k, v = np.split(self._linear(self._norm(x, at + "ln_1"), at + "attn.c_attn"), 3, -1)
            out, k, v = attend(*(heads(y, c.n_head) for y in (q, k, v)), past[n] if past else None)
            present.append((k, v))
            x = x + self._linear(out, at + "attn.c_proj")
            y = self._linear(self._norm(x, at + "ln_2"), at + "mlp.c_fc")
            y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
            x = x + self._linear(y, at + "mlp.c_proj")
        return self._norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T, present

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.layer_norm_epsilon)
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]
