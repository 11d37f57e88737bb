"""Context Tuning (CT-KV): a memory that is trained by gradients on its own demonstrations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Note, Tell, silent
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.techniques.base import Trained, Training

if TYPE_CHECKING:  # techniques are named in help pages and reports, without torch
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
        from deepthink_cli.model.tokens import own_tokens

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
