"""How many tokens a model can hold, determined from the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from deepthink_cli.errors import InputError
from deepthink_cli.model.families import refuse_unfit, takes_positions


@dataclass(frozen=True)
class Limits:
    """What bounds the tokens a model can attend to; None where nothing does.

    `positions` counts positions the model knows, `window` the keys that its narrowest layer sees,
    `keys` the keys its mask buffer holds (GPT-Neo). `relative` says that positions follow from the
    number of keys (ALiBi), so that positions cannot be set. Passes that end within the first
    `boundary` positions use other rotary factors than longer ones (LongRoPE).
    """

    positions: int | None
    window: int | None
    keys: int | None
    relative: bool
    boundary: int | None = None

    def side(self, end: int) -> int:
        """The rotary factors of a pass whose last position is `end` - 1: 0 up to the boundary, 1 beyond it."""
        return int(self.boundary is not None and end > self.boundary)

    def largest(self, positions: str, iterations: int, length: int = 0) -> int | None:
        """The most demonstration tokens L that fit T readings, on the same side of the boundary as `length`."""
        repeat = 1 if iterations == 1 else 2
        share = repeat if positions == "continued" else 1
        bounds = [bound // repeat for bound in (self.window, self.keys) if bound is not None]
        bounds += [] if self.positions is None else [self.positions // share]
        far = min(bounds, default=None)
        if self.boundary is None or (self.side(length) and (far is None or self.side(far))):
            return far
        return min([*bounds, self.boundary // share])

    def holds(self, length: int, positions: str, iterations: int) -> bool:
        """Whether T readings of `length` demonstration tokens fit."""
        largest = self.largest(positions, iterations, length)
        return largest is None or length <= largest

    def most_tokens(self, length: int = 0) -> int | None:
        """The most tokens that a memory of `length` tokens, a query and its candidate can have together."""
        bounds = [bound for bound in (self.positions, self.window, self.keys, self._near(length)) if bound is not None]
        return min(bounds, default=None)

    def reason(self, length: int = 0) -> str:
        """The limit that applies to a memory of `length` tokens, in words."""
        most = self.most_tokens(length)
        if self.window is not None and self.window == most:
            return f"sliding window of {self.window}"
        if self._near(length) == most != self.positions:
            return f"other rotary factors beyond position {most}"
        return f"context of {most}"

    def _near(self, length: int) -> int | None:
        """The boundary, if `length` is within it."""
        return None if self.side(length) else self.boundary


def limits_of(config: PretrainedConfig) -> Limits:
    """Read the limits from a configuration; raises InputError, naming it, for an unsupported model."""
    text: Any = config.get_text_config(decoder=True)
    refuse_unfit(config, text)
    alibi = text.model_type in ("bloom", "mpt") or bool(getattr(text, "alibi", False))
    positions = getattr(text, "max_position_embeddings", None)
    window, boundary = _window(text), _boundary(text)
    for bound in (positions, window, boundary):
        if bound is not None and not isinstance(bound, int):
            raise InputError(f"config.json: {bound!r} is no number of tokens; correct its positions and windows")
    neo = text.model_type == "gpt_neo"
    return Limits(
        positions=None if alibi else positions,
        window=window,
        keys=positions if neo else None,
        relative=alibi or not takes_positions(config),
        boundary=boundary,
    )


def check_demonstrations(
    limits: Limits, lengths: Sequence[int], iterations: int, positions: str, model: str, bound: str = ""
) -> None:
    """Raise InputError unless T readings of the demonstrations fit; `lengths` [N] are tokens up to each one's end.

    `bound` is said of the lengths where they are not exact.
    """
    total = lengths[-1]
    if positions == "restarted" and limits.relative:
        raise InputError(
            f"--positions restarted: {model} has no positions to restart: they follow from the number of earlier tokens "
            "(as with ALiBi); use continued"
        )
    largest = limits.largest(positions, iterations, total)
    if largest is None or total <= largest:
        return
    fit = max((n for n, one in enumerate(lengths, 1) if limits.holds(one, positions, iterations)), default=0)
    readings = "2L tokens from the second reading on" if iterations > 1 else "L tokens"
    more = (
        positions == "continued" and not limits.relative and limits.largest("restarted", iterations, total) != largest
    )
    raise InputError(
        f"demonstrations too long: L = {bound}{total} tokens, {model} holds {largest} ({readings}, "
        f"{limits.reason(total)}); the first {fit} of {len(lengths)} demonstrations would fit"
        f"{', more with --positions restarted' if more else ''}"
    )


def check_pass(limits: Limits, tokens: int, past: int, start: int, model: str) -> None:
    """Raise InputError unless a pass of `tokens` at positions `start` onward, after `past` keys, fits the model."""
    if limits.relative and start != past:
        raise InputError(
            f"restarted positions: {model} has no positions to restart: they follow from the number of earlier tokens; use continued"
        )
    bounds = ((limits.positions, start + tokens), (limits.window, past + tokens), (limits.keys, past + tokens))
    crossed = past and limits.side(past) != limits.side(start + tokens)
    if crossed or any(bound is not None and needed > bound for bound, needed in bounds):
        raise InputError(
            f"too long: {tokens} tokens after {past} of memory, {model} holds {limits.most_tokens(past)} "
            f"({limits.reason(past)}); give fewer or shorter demonstrations"
        )


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


def _boundary(config: Any) -> int | None:
    """The number of positions up to which a LongRoPE model uses its short factors."""
    layers = [one for one in _rotary(config) if one.get("rope_type") == "longrope" or "long_mscale" in one]
    boundaries = {one.get("original_max_position_embeddings") for one in layers}
    if len(boundaries) > 1:
        raise InputError("config.json: the layers' rotary factors change at different positions; choose another model")
    return boundaries.pop() if boundaries else None


def _rotary(config: Any) -> Iterator[dict[str, Any]]:
    """The rotary parameters of all layers, and of each kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    yield parameters
    yield from (kind for kind in parameters.values() if isinstance(kind, dict))
