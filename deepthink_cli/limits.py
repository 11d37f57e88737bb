"""How many tokens a model can hold, and which models have a memory at all; told from the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import AutoModelForCausalLM, PretrainedConfig

from deepthink_cli.errors import InputError

_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention", "attention", "local", "global"}


@dataclass(frozen=True)
class Limits:
    """What bounds the tokens a model can attend to; None where nothing does.

    `positions` counts positions the model knows, `window` the keys that its narrowest layer sees,
    `keys` the keys its mask buffer holds (GPT-Neo). `relative` says that positions follow from the
    number of keys (ALiBi), so that no position can be given.
    """

    positions: int | None
    window: int | None
    keys: int | None
    relative: bool

    def largest(self, positions: str, iterations: int) -> int | None:
        """The most demonstration tokens L that T readings can hold."""
        repeat = 1 if iterations == 1 else 2
        bounds = [bound // repeat for bound in (self.window, self.keys) if bound is not None]
        if self.positions is not None and not self.relative:
            bounds.append(self.positions // (repeat if positions == "continued" else 1))
        return min(bounds, default=None)

    def most_tokens(self) -> int | None:
        """The most tokens that memory, query and candidate can have together."""
        bounds = [bound for bound in (self.positions, self.window, self.keys) if bound is not None]
        return min(bounds, default=None)

    def reason(self) -> str:
        """The bound that binds, in words."""
        if self.window is not None and self.window == self.most_tokens():
            return f"sliding window of {self.window}"
        return f"context of {self.most_tokens()}"


def limits_of(config: PretrainedConfig) -> Limits:
    """Read the limits from a configuration; raises InputError, by name, for a model without keys and values."""
    text: Any = config.get_text_config(decoder=True)
    _refuse_without_memory(config, text)
    relative = text.model_type in ("bloom", "mpt") or bool(getattr(text, "alibi", False))
    positions = getattr(text, "max_position_embeddings", None)
    window = _window(text)
    for bound in (positions, window):
        if bound is not None and not isinstance(bound, int):
            raise InputError(f"config.json: {bound!r} is no number of tokens; correct its positions and windows")
    neo = text.model_type == "gpt_neo"
    return Limits(
        positions=None if relative else positions,
        window=window,
        keys=positions if neo else None,
        relative=relative,
    )


def check_demonstrations(
    limits: Limits, lengths: Sequence[int], iterations: int, positions: str, model: str, bound: str = ""
) -> None:
    """Raise InputError unless T readings of the demonstrations fit; `lengths` [N] are tokens up to each one's end.

    `bound` is said of the lengths where they are not exact.
    """
    total = lengths[-1]
    if positions == "restarted" and limits.relative:
        raise InputError(f"--positions restarted: {model} has no positions to restart (ALiBi); use continued")
    largest = limits.largest(positions, iterations)
    if largest is None or total <= largest:
        return
    fit = sum(length <= largest for length in lengths)
    readings = "2L tokens from the second reading on" if iterations > 1 else "L tokens"
    raise InputError(
        f"demonstrations too long: L = {bound}{total} tokens, {model} holds {largest} ({readings}, {limits.reason()}); "
        f"the first {fit} of {len(lengths)} demonstrations would fit{_advice(limits, positions, iterations)}"
    )


def check_pass(limits: Limits, tokens: int, past: int, start: int, model: str) -> None:
    """Raise InputError unless a pass of `tokens` at positions `start` onward, after `past` keys, fits the model."""
    if limits.relative and start != past:
        raise InputError(f"restarted positions: {model} has none to restart (ALiBi); use continued")
    bounds = ((limits.positions, start + tokens), (limits.window, past + tokens), (limits.keys, past + tokens))
    if any(bound is not None and needed > bound for bound, needed in bounds):
        raise InputError(
            f"too long: {tokens} tokens after {past} of memory, {model} holds {limits.most_tokens()} "
            f"({limits.reason()}); give fewer or shorter demonstrations"
        )


def _advice(limits: Limits, positions: str, iterations: int) -> str:
    if iterations > 1 and positions == "continued" and not limits.relative and limits.window is None:
        return ", more with --positions restarted"
    return ""


def _window(config: Any) -> int | None:
    kinds = set(getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or ())
    windows = []
    if not kinds or "sliding_attention" in kinds:
        windows.append(getattr(config, "sliding_window", None))
    if "chunked_attention" in kinds:
        windows.append(getattr(config, "attention_chunk_size", None))
    if "local" in kinds:
        windows.append(getattr(config, "window_size", None))
    return min((window for window in windows if window is not None), default=None)


def _refuse_without_memory(config: PretrainedConfig, text: Any) -> None:
    name = (config.architectures or [text.model_type])[0]
    kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    other = sorted({str(kind) for kind in kinds} - _ATTENTION)
    if other:
        raise InputError(
            f"{name} has {', '.join(other)} layers, which keep no keys and values: Deep-Thinking is undefined there; choose a model with attention only"
        )
    network = AutoModelForCausalLM._model_mapping.get(type(text), None) or AutoModelForCausalLM._model_mapping.get(
        type(config), None
    )
    if getattr(network, "_is_stateful", False):
        raise InputError(
            f"{name} ({text.model_type}) keeps a state instead of keys and values: Deep-Thinking is undefined there; choose a model with attention only"
        )
