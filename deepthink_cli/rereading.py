"""What a reading after the first reads: the demonstrations after their memory, in the order of the update rule.

The tokens are always those of the first reading. Where a rule changes the order (`updates/orders.py`), a demonstration
takes its tokens with it: those that begin in its text or in the separator after it. The special tokens before the first
demonstration stay in front. The memory keeps the order of the first reading.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

from transformers import PreTrainedTokenizerBase

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.memory import Memory
from deepthink_cli.method import Method
from deepthink_cli.model.tokens import special_ids
from deepthink_cli.provenance import TokenizedDemonstrations


@dataclass(frozen=True)
class Rereading:
    """The tokens of one reading after the first, and the position of the first of them.

    `places[i]` is the place of token i in the first reading; None if no token has moved.
    """

    token_ids: tuple[int, ...]
    start: int
    places: tuple[int, ...] | None = None

    def in_first_order(self, present: Memory) -> Memory:
        """The present, (kv_heads, L, head_dim), with every token at its place in the first reading."""
        return present if self.places is None else present.placed(self.places)


def reread(
    tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations, method: Method, iteration: int
) -> Rereading:
    """What reading `iteration` reads.

    Raises InputError for turns of a conversation in a changed order, which this program does not separate.
    """
    ids, count = demonstrations.token_ids, len(demonstrations.examples)
    start, order = method.start(len(ids)), list(method.update.order(iteration, count))
    if order == list(range(count)):
        return Rereading(ids, start)
    if sorted(order) != list(range(count)):
        raise DeepThinkError(
            f"{type(method.update).__name__}: the order of reading {iteration} must have every demonstration once"
        )
    starts = demonstration_starts(tokenizer, demonstrations)
    parts = [range(*ends) for ends in pairwise((*starts, len(ids)))]
    places = tuple(chain(range(starts[0]), *(parts[number] for number in order)))
    return Rereading(tuple(ids[place] for place in places), start, places)


def demonstration_starts(
    tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations
) -> tuple[int, ...]:
    """The place of the first token of every demonstration.

    Raises InputError for turns of a conversation, and for a tokenizer that does not know which characters a token is.
    """
    if demonstrations.chat is not None:
        raise InputError("the order of the demonstrations is changed in plain text only; omit --chat")
    if not tokenizer.is_fast:
        raise InputError("this tokenizer does not say which characters a token is; use --update gate")
    template, pairs = demonstrations.template, [(each.text, each.label) for each in demonstrations.examples]
    texts = [template.demonstrations([(text, demonstrations.word(label))]) for text, label in pairs]
    encoded = tokenizer("".join(texts), split_special_tokens=True, return_offsets_mapping=True, verbose=False)
    special = len(special_ids(tokenizer))
    begins = [begin for begin, _ in encoded["offset_mapping"][special : len(demonstrations.token_ids)]]
    ends = accumulate(map(len, texts[:-1]), initial=0)
    return tuple(special + bisect_left(begins, end) for end in ends)
