"""Which tokens of the demonstrations' text belong to which demonstration."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from deepthink_cli.errors import InputError
from deepthink_cli.provenance import TokenizedDemonstrations


def own_tokens(tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations, needed_by: str) -> Tensor:
    """Which tokens (R, L) hold a character of demonstration r or of the separator after it.

    A token that the tokenizer joins across the end of a demonstration belongs to both. `needed_by` is the option that
    needs this. Raises InputError for turns of a
    conversation, for a tokenizer that does not say which characters its tokens stand for, and for one that writes
    the demonstrations in another way than when they were tokenised.
    """
    if demonstrations.chat is not None:
        raise InputError(
            f"{needed_by}: a chat template does not say which tokens are whose; omit --chat, or use another method"
        )
    if not tokenizer.is_fast:
        raise InputError(
            f"{needed_by}: {type(tokenizer).__name__} does not say which characters a token stands for; use a model "
            "with a fast tokenizer (tokenizer.json)"
        )
    template = demonstrations.template
    texts = [
        template.demonstrations([(each.text, demonstrations.word(each.label))]) for each in demonstrations.examples
    ]
    encoded = tokenizer(
        "".join(texts), add_special_tokens=True, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    length = len(demonstrations.token_ids)
    if tuple(encoded["input_ids"][:length]) != demonstrations.token_ids:
        raise InputError(f"{needed_by}: the tokenizer writes the demonstrations in another way now; think again")
    first_L, stop_L = torch.tensor(encoded["offset_mapping"][:length]).T
    ends_R1 = torch.tensor(list(accumulate(map(len, texts))))[:, None]
    starts_R1 = ends_R1 - torch.tensor(list(map(len, texts)))[:, None]
    own_RL: Tensor = (first_L < ends_R1) & (stop_L > starts_R1)
    if not own_RL.any(1).all():
        raise InputError(f"{needed_by}: the tokenizer gives no tokens for a demonstration; use another model")
    # Some tokenizers give whitespace no characters, as in the separator: it belongs to the demonstration before it.
    begins_R, places_L = own_RL.int().argmax(1), torch.arange(length)
    next_R = torch.cat([begins_R[1:], torch.tensor([length])])
    return own_RL | ((places_L >= begins_R[:, None]) & (places_L < next_R[:, None]))
