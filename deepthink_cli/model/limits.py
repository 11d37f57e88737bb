"""The length limits of a model, determined from its configuration, and the number of demonstrations that fit it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from deepthink_cli.data.examples import DemonstrationSet, Example
from deepthink_cli.data.template import MAX_TEXT
from deepthink_cli.errors import InputError, option
from deepthink_cli.model.families import (
    has_alibi,
    longrope_positions,
    max_keys,
    refuse_unfit,
    window_sizes,
    windowed_layers,
)
from deepthink_cli.model.tokens import tokenize_demonstrations

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from deepthink_cli.provenance import TokenizedDemonstrations


@dataclass(frozen=True)
class Limits:
    """Limits on the tokens that a model can attend to; None means no limit.

    `positions` is the number of positions, `keys` the number of tokens that a token can attend to (GPT-Neo's mask
    buffer). `relative`: positions follow from the number of keys (ALiBi) and cannot be set. An attention `window` is no
    limit in general: a layer ignores the tokens before a token's window.
    """

    positions: int | None
    keys: int | None
    relative: bool
    window: int | None = None

    def after(self, demonstrations: TokenizedDemonstrations) -> Limits:
        """The limits after demonstrations; if they were read apart, a window is a limit, as it would hide some."""
        if self.window is None or not demonstrations.parts:
            return self
        return replace(self, keys=self.window if self.keys is None else min(self.keys, self.window))

    def largest(self, positions: str, iterations: int) -> int | None:
        """The largest L for which T readings fit; None: no limit."""
        repeat = 1 if iterations == 1 else 2
        bounds = [] if self.keys is None else [self.keys // repeat]
        bounds += [] if self.positions is None else [self.positions // (repeat if positions == "continued" else 1)]
        return min(bounds, default=None)

    def holds(self, length: int, positions: str, iterations: int) -> bool:
        """Whether T readings of `length` demonstration tokens fit."""
        largest = self.largest(positions, iterations)
        return largest is None or length <= largest

    def max_tokens(self) -> int | None:
        """The maximum total of a memory, a query and its candidate, in tokens; None: no limit."""
        return min((bound for bound in (self.positions, self.keys) if bound is not None), default=None)

    def reason(self) -> str:
        """The limit that applies, in words."""
        most = self.max_tokens()
        return f"window of {most}" if most != self.positions else f"context of {most}"


def limits_of(config: PretrainedConfig) -> Limits:
    """Read the limits from a configuration; raises InputError for an unsupported model."""
    text: Any = config.get_text_config(decoder=True)
    refuse_unfit(config, text)
    alibi = has_alibi(text)
    positions = getattr(text, "max_position_embeddings", None)
    short = longrope_positions(text)
    windowed = windowed_layers(text)
    for bound in (positions, short, *window_sizes(text).values()):
        if bound is not None and not isinstance(bound, int):
            raise InputError(f"config.json: {bound!r} must be a number of tokens; correct its positions and windows")
    return Limits(
        positions=None if alibi else positions if short is None else min(short, positions or short),
        keys=max_keys(text),
        relative=alibi,
        window=None if windowed is None else windowed[0],
    )


def check_pass(limits: Limits, tokens: int, past: int, start: int, model: str) -> None:
    """Raise InputError unless a pass of `tokens` at positions `start` onward, after `past` keys, fits the model."""
    if limits.relative and start != past:
        raise _no_restart(model)
    bounds = ((limits.positions, start + tokens), (limits.keys, past + tokens))
    if any(bound is not None and needed > bound for bound, needed in bounds):
        raise InputError(
            f"too long: {tokens} tokens after {past} of memory, {model} holds {limits.max_tokens()} "
            f"({limits.reason()}); give fewer or shorter demonstrations"
        )


def _no_restart(model: str) -> InputError:
    reason = f"{model} has no positions to restart: they follow from the number of earlier tokens (as with ALiBi)"
    return InputError.of("positions", "restarted", f"{reason}; use continued")


def remaining_tokens(limits: Limits, length: int, tokens: int) -> int | None:
    """The most tokens that can be generated after a memory of `length` and a prompt of `tokens`; None: no limit."""
    most = limits.max_tokens()
    return None if most is None else most - length - tokens + 1  # the last new token is not read


def check_continuation(limits: Limits, model: str, length: int, ids: Sequence[int], new: int, where: str) -> None:
    """Raise InputError for a prompt without tokens, and unless it fits with `new` tokens after `length` of memory."""
    if not ids:
        raise InputError(f"{where}: has no tokens; give a text to continue")
    remaining = remaining_tokens(limits, length, len(ids))
    if remaining is not None and remaining < new:
        hint = (
            f"use {option('max_new_tokens')} {remaining} or less"
            if remaining > 0
            else "shorten it, or make the memory of fewer demonstrations"
        )
        raise InputError(
            f"{where}: too long: {len(ids)} tokens after {length} of memory and {new} new ones, {model} holds "
            f"{limits.max_tokens()} ({limits.reason()}); {hint}"
        )


SHARE = 0.75  # the part of the context for as many demonstrations as fit; the rest is for a query
JOINED = 16  # tokens; a demonstration that is appended to a text merges far fewer


def check_fit(
    limits: Limits,
    tokenizer: PreTrainedTokenizerBase,
    demonstrations: DemonstrationSet,
    iterations: int,
    positions: str,
    model: str,
) -> None:
    """Raise InputError, with the number of first demonstrations that would fit, unless T readings of all fit.

    The number of tokens L in the message is exact up to `MAX_TEXT` characters, and a lower bound beyond.
    """
    if positions == "restarted" and limits.relative:
        raise _no_restart(model)
    count, largest = len(demonstrations.examples), limits.largest(positions, iterations)
    if largest is None:
        return
    tokens = cache(lambda number: count_tokens(tokenizer, demonstrations, demonstrations.examples[:number]))
    solved = ((each.text, each.label) for each in demonstrations.examples)
    short = len(demonstrations.template.demonstrations(solved)) <= MAX_TEXT
    fit = count if short and tokens(count) <= largest else max_count(tokens, count, largest)
    if fit == count:
        return
    total = str(tokens(count)) if short or fit + 1 == count else f"at least {tokens(fit + 1)}"
    readings = "2L tokens from the second reading on" if iterations > 1 else "L tokens"
    more = positions == "continued" and not limits.relative and limits.largest("restarted", iterations) != largest
    hint = f", more with {option('positions')} restarted" if more else ""
    raise InputError(
        f"demonstrations too long: L = {total} tokens, {model} holds {largest} ({readings}, {limits.reason()}); the "
        f"first {fit} of {count} demonstrations would fit{hint}"
    )


def max_demonstrations(
    limits: Limits, positions: str, iterations: int, tokens: Callable[[int], int], count: int, share: float = 1
) -> int:
    """The greatest number of demonstrations, up to `count`, whose `tokens` fit T readings; 0 if none fits.

    They may use at most the part `share` of the tokens that fit the model together with a query.
    """

    most, largest = limits.max_tokens(), limits.largest(positions, iterations)
    bounds = [largest, None if most is None else int(most * share)]
    bound = min((each for each in bounds if each is not None), default=None)
    return count if bound is None else max_count(tokens, count, bound)


def max_count(tokens: Callable[[int], int], count: int, largest: int) -> int:
    """The greatest number of demonstrations, up to `count`, with at most `largest` `tokens`; 0 if none fits.

    At most about twice as many demonstrations as fit are tokenised at once.
    """
    tried = 1
    while tried < count and tokens(tried) <= largest:
        tried = min(2 * tried, count)
    fit = bisect_left(range(1, tried + 1), True, key=lambda number: tokens(number) > largest)
    for number in range(fit + 1, count + 1):  # adding one can remove a token, if a token spans two
        if tokens(number) > largest + JOINED:
            break
        fit = number if tokens(number) <= largest else fit
    return fit


def count_tokens(
    tokenizer: PreTrainedTokenizerBase, demonstrations: DemonstrationSet, examples: Sequence[Example]
) -> int:
    """The number of tokens of some demonstrations, which are tokenised together."""
    return len(tokenize_demonstrations(tokenizer, replace(demonstrations, examples=tuple(examples))).token_ids)


def last_of(demonstrations: DemonstrationSet, number: int) -> DemonstrationSet:
    """The last demonstrations, in their order."""
    return replace(demonstrations, examples=demonstrations.examples[-number:])
