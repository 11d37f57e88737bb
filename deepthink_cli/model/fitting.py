"""The number of demonstrations that fit a model, determined without tokenising many more than fit."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import DemonstrationSet, Example
from deepthink_cli.data.template import Template
from deepthink_cli.data.values import MAX_TEXT
from deepthink_cli.model.limits import Limits, check_demonstrations
from deepthink_cli.model.tokens import tokenize_demonstrations

SHARE = 0.75  # of the context for demonstrations, where as many as fit are chosen: the rest is for a query
JOINED = 16  # tokens; appending a demonstration to a text merges far fewer


def check_fit(
    limits: Limits,
    tokenizer: PreTrainedTokenizerBase,
    demonstrations: DemonstrationSet,
    iterations: int,
    positions: str,
    model: str,
) -> None:
    """Raise InputError unless T readings of the demonstrations fit; it says how many of the first ones would.

    The number of tokens L that the message names is exact up to `MAX_TEXT` characters, and a lower bound beyond.
    """
    count, bound, method = len(demonstrations.examples), "", (positions, iterations)
    lengths = [0] * count  # only which ones fit and the length of the last one matter
    if limits.largest(*method, sys.maxsize) is not None:
        tokens = cache(lambda number: count_tokens(tokenizer, demonstrations, demonstrations.examples[:number]))
        short = len(_text(demonstrations.template, demonstrations.examples)) <= MAX_TEXT
        fit = (
            count
            if short and limits.holds(tokens(count), *method)
            else max_demonstrations(limits, *method, tokens, count)
        )
        if fit < count:
            lengths[fit:] = [tokens(count if short else fit + 1)] * (count - fit)
            bound = "" if short or fit + 1 == count else "at least "
    check_demonstrations(limits, lengths, iterations, positions, model, bound)


def max_demonstrations(
    limits: Limits, positions: str, iterations: int, tokens: Callable[[int], int], count: int, share: float = 1
) -> int:
    """The greatest number of demonstrations, up to `count`, whose `tokens` fit T readings; 0 if none fits.

    They may use at most `share` of the tokens that fit the model together with a query.
    """

    def bound(length: int) -> int | None:
        most = limits.max_tokens(length)
        bounds = [limits.largest(positions, iterations, length), None if most is None else int(most * share)]
        return min((bound for bound in bounds if bound is not None), default=None)

    for length in (sys.maxsize, 0):  # beyond the LongRoPE boundary, if there is one, then within it
        largest = bound(length)
        if largest is None:
            return count
        fit = max_count(tokens, count, largest)
        if fit and tokens(fit) <= (bound(tokens(fit)) or 0):
            return fit
    return 0


def max_count(tokens: Callable[[int], int], count: int, largest: int) -> int:
    """The greatest number of demonstrations, up to `count`, whose `tokens` are at most `largest`; 0 if none fits.

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
    """Tokens of some of the demonstrations, which are tokenised together."""
    return len(tokenize_demonstrations(tokenizer, replace(demonstrations, examples=tuple(examples))).token_ids)


def last_of(demonstrations: DemonstrationSet, number: int) -> DemonstrationSet:
    """The last demonstrations, in their order."""
    return replace(demonstrations, examples=demonstrations.examples[-number:])


def _text(template: Template, examples: Sequence[Example]) -> str:
    return template.demonstrations((example.text, example.label) for example in examples)
