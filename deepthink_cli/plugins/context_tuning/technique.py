"""Context Tuning (CT-KV): a memory that is trained by gradients on its own demonstrations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.techniques.base import Trained, Training

if TYPE_CHECKING:  # techniques are named in help pages and reports, without torch
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from deepthink_cli.engine.base import Engine
    from deepthink_cli.model.spec import ModelSpec

FEWEST = 4  # different demonstrations from which on each is left out of what it is trained on (Context Tuning)


@dataclass(frozen=True)
class ContextTuning(Trained):
    """Context Tuning; the default parameters are its authors'.

    `steps` full-batch steps of AdamW, whose rate falls from `lr` to 0 along a cosine; in each step every row does not
    see a random share `dropout` of the memory's tokens, drawn from `seed`, which is not the seed that the
    demonstrations were drawn with: the same demonstrations make the same memory.
    """

    summary = "train the memory by gradients (Context Tuning)"
    source = "Context Tuning, arXiv 2507.04221"
    cost = "one pass over L tokens, then `steps` forward and backward passes over the demonstrations as queries"

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    seed: Annotated[int, Field(ge=0)] = 0

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.lr * (1 + math.cos(math.pi * step / self.steps)) / 2

    def check(self, spec: ModelSpec, demonstrations: TokenizedDemonstrations, tell: Tell = silent) -> None:
        """Raise InputError for quantized weights, and for tokens that are not known to be a demonstration's own."""
        if spec.options.quantize is not None:
            raise InputError.of(
                "quantize",
                spec.options.quantize,
                f"{self.option} needs gradients, which quantized weights do not give exactly; use {option('dtype')} "
                "bfloat16, or another technique",
            )
        own_tokens(spec.tokenizer, demonstrations, self.option)
        if len(set(demonstrations.groups)) < FEWEST:
            tell(Note(f"fewer than {FEWEST} different demonstrations: each is trained with its own tokens in sight"))

    def training(self, engine: Engine, demonstrations: TokenizedDemonstrations) -> Training:
        """The training of a memory of these demonstrations; raises InputError as `own_tokens` does."""
        from deepthink_cli.plugins.context_tuning.training import ContextTraining

        return ContextTraining(engine, demonstrations, self)


def own_tokens(
    tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations, needed_by: Problem
) -> Tensor:
    """A mask (R, L) of the tokens that hold a character of demonstration r or of the separator after it.

    A token that the tokenizer joins across the end of a demonstration belongs to both. `needed_by` is the option that
    needs the mask. Raises InputError for turns of a conversation, for a tokenizer that does not know the characters of
    its tokens, and for a tokenizer that now writes the demonstrations differently.
    """
    import torch

    from deepthink_cli.model.boundary import followed
    from deepthink_cli.model.tokens import solved_texts

    why = None
    if demonstrations.chat is not None:
        why = f"a chat template does not say which tokens are whose; omit {option('chat')}, or use another method"
    elif not tokenizer.is_fast:
        why = (
            f"{type(tokenizer).__name__} does not say which characters a token stands for; use a model with a fast "
            "tokenizer (tokenizer.json)"
        )
    if why is not None:
        raise InputError(needed_by.because(why))
    template, texts = demonstrations.template, solved_texts(demonstrations)
    encoded = tokenizer(
        followed(template, "".join(texts)),
        add_special_tokens=True,
        split_special_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    length = len(demonstrations.token_ids)
    if tuple(encoded["input_ids"][:length]) != demonstrations.token_ids:
        raise InputError(
            needed_by.because("the tokenizer writes the demonstrations in another way now; run deepthink think again")
        )
    first_L, stop_L = torch.tensor(encoded["offset_mapping"][:length]).T
    ends_R1 = torch.tensor(list(accumulate(map(len, texts))))[:, None]
    starts_R1 = ends_R1 - torch.tensor(list(map(len, texts)))[:, None]
    own_RL: Tensor = (first_L < ends_R1) & (stop_L > starts_R1)
    if not own_RL.any(1).all():
        raise InputError(needed_by.because("the tokenizer gives no tokens for a demonstration; use another model"))
    # Some tokenizers give whitespace no characters, as in the separator: it belongs to the demonstration before it.
    begins_R, places_L = own_RL.int().argmax(1), torch.arange(length)
    next_R = torch.cat([begins_R[1:], torch.tensor([length])])
    return own_RL | ((places_L >= begins_R[:, None]) & (places_L < next_R[:, None]))
