"""The demonstrations as training rows: each as a query with its answer, and which tokens of the memory are its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import TrainingRow
from deepthink_cli.errors import InputError
from deepthink_cli.model.own_tokens import own_tokens
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.provenance import TokenizedDemonstrations

NEEDED_BY = "--method ct-kv"
FEWEST = 4  # demonstrations from which on each row is left out of the memory that it is trained on (Context Tuning)


@dataclass(frozen=True, eq=False)
class Rows:
    """The demonstrations as queries, before anything is hidden from them.

    `ids[i]` are the tokens of demonstration i as a query with its answer, the last `answers[i]` of which are the
    answer's. `own_RL` (R, L) is True at the tokens of the memory that row i must not attend to: those of demonstration
    i, or none if there are fewer than four demonstrations.
    """

    ids: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]
    own_RL: Tensor

    def hiding(self, dropped_RL: Tensor) -> list[TrainingRow]:
        """The training rows, from which the tokens `dropped_RL` are hidden as well as their own."""
        hidden_RL = self.own_RL | dropped_RL
        return [TrainingRow(*row) for row in zip(self.ids, self.answers, hidden_RL, strict=True)]


def check_trainable(spec: ModelSpec, demonstrations: TokenizedDemonstrations) -> None:
    """Raise InputError if the model or the demonstrations cannot be trained on; needs no weights."""
    if spec.options.quantize is not None:
        raise InputError(
            f"--quantize {spec.options.quantize}: --method ct-kv needs gradients, which quantized weights do not give "
            "exactly; use --dtype bfloat16, or another method"
        )
    own_tokens(spec.tokenizer, demonstrations, NEEDED_BY)


def training_rows(tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations) -> Rows:
    """The rows of these demonstrations; raises InputError as `own_tokens` does."""
    ids, answers = [], []
    for number, example in enumerate(demonstrations.examples, start=1):
        candidates = demonstrations.labels or (example.label,)
        query = Query(example.text, candidates, where=f"demonstration {number}")
        (tokenized,) = tokenize_queries(tokenizer, demonstrations, [query])
        answer = tokenized.answers[candidates.index(example.label)]
        ids.append(tokenized.prefix + answer)
        answers.append(len(answer))
    own_RL = own_tokens(tokenizer, demonstrations, NEEDED_BY)
    return Rows(tuple(ids), tuple(answers), own_RL if len(ids) >= FEWEST else torch.zeros_like(own_RL))
