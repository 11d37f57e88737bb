"""The text of a reading after the first: the demonstrations after their memory, in the order of the update rule.

The tokens are always the tokens of the first reading. If a rule changes the order (`updates/ablations.py`), a
demonstration moves with its tokens: from the first token that holds a character of it to the last token before the next
demonstration. The special tokens before the first demonstration stay in front. The memory keeps the order of the first
reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.method import Method
from deepthink_cli.model.tokens import own_tokens
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.updates.registry import rule_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from deepthink_cli.memory import Memory


@dataclass(frozen=True)
class Rereading:
    """The texts of one reading after the first, as token ids, and the position of the first token.

    `places[i]` is the place of token i in the first reading; None if no token has moved.
    """

    texts: tuple[tuple[int, ...], ...]
    start: int
    places: tuple[int, ...] | None = None

    def in_first_order(self, present: Memory) -> Memory:
        """The present, (kv_heads, L, head_dim), with every token at its place in the first reading."""
        return present if self.places is None else present.placed(self.places)


def reread(
    tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations, method: Method, iteration: int
) -> Rereading:
    """The texts of reading `iteration`.

    Raises InputError as `own_tokens`, for a changed order of demonstrations whose tokens are not known, and
    DeepThinkError for an order that does not have every demonstration once.
    """
    ids, count = demonstrations.token_ids, len(demonstrations.examples)
    start, order = method.start(len(ids)), list(method.update.order(iteration, count))
    if order == list(range(count)):
        return Rereading(demonstrations.texts, start)
    if sorted(order) != list(range(count)):
        raise DeepThinkError(
            f"{type(method.update).__name__}: the order of reading {iteration} must have every demonstration once"
        )
    if demonstrations.parts:
        raise InputError.of(
            "update", rule_text(method.update), "changes the order of demonstrations that are read apart"
        )
    own_RL = own_tokens(tokenizer, demonstrations, Problem.of("update", rule_text(method.update)))
    starts = own_RL.int().argmax(1).tolist()
    parts = [range(*ends) for ends in pairwise((*starts, len(ids)))]
    places = tuple(chain(range(starts[0]), *(parts[number] for number in order)))
    return Rereading((tuple(ids[place] for place in places),), start, places)
