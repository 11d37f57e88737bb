"""The training of Context Tuning: rows that do not see their own tokens, and steps of AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.errors import Problem
from deepthink_cli.memory import Memory
from deepthink_cli.method import Method
from deepthink_cli.model.tokens import tokenize_queries
from deepthink_cli.plugins.context_tuning.gradients import TrainingRow, answer_gradient, trainable
from deepthink_cli.plugins.context_tuning.technique import FEWEST, ContextTuning, own_tokens
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Rows:
    """The demonstrations as queries, before anything is hidden from them.

    `ids[i]` are the tokens of demonstration i as a query with its answer; the last `answers[i]` tokens are the answer.
    `own_RL` (R, L) is True at the tokens of the memory that row i must not attend to: the demonstrations with the same
    input as demonstration i, or none if there are fewer than four inputs.
    """

    ids: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]
    own_RL: Tensor

    def hiding(self, dropped_RL: Tensor) -> list[TrainingRow]:
        """The training rows; the tokens `dropped_RL` and a row's own tokens are hidden from it."""
        hidden_RL = self.own_RL | dropped_RL
        return [TrainingRow(*row) for row in zip(self.ids, self.answers, hidden_RL, strict=True)]


def training_rows(
    tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations, needed_by: Problem
) -> Rows:
    """The rows of these demonstrations; raises InputError, about the option `needed_by`, as `own_tokens` does."""
    ids, answers = [], []
    for number, example in enumerate(demonstrations.examples, start=1):
        candidates = demonstrations.labels or (example.label,)
        query = Query(example.text, candidates, where=f"demonstration {number}")
        (tokenized,) = tokenize_queries(tokenizer, demonstrations, [query])
        answer = tokenized.answers[candidates.index(example.label)]
        ids.append(tokenized.prefix + answer)
        answers.append(len(answer))
    own_RL = own_tokens(tokenizer, demonstrations, needed_by)
    groups_R = torch.tensor(demonstrations.groups)
    same_RR = groups_R[:, None] == groups_R
    own_RL = torch.stack([own_RL[same_R].any(0) for same_R in same_RR])
    return Rows(
        tuple(ids), tuple(answers), own_RL if len(set(demonstrations.groups)) >= FEWEST else torch.zeros_like(own_RL)
    )


_CLIP = 1.0  # most of the gradient's norm over all tensors


class ContextTraining:
    """The training of one memory; `step` counts the steps done."""

    def __init__(self, engine: Engine, demonstrations: TokenizedDemonstrations, tuning: ContextTuning) -> None:
        self.engine, self.tuning, self.step = trainable(engine), tuning, 0
        self.rows = training_rows(engine.tokenizer, demonstrations, tuning.option)
        (first,) = engine.read([Reading(demonstrations.token_ids)])
        provenance = Provenance(engine.identity, demonstrations, Method(iterations=1), technique=tuning.recorded())
        self.memory: Memory = replace(first.copy(), provenance=provenance)
        self._tensors = [*self.memory.keys, *self.memory.values]
        self._optimizer = torch.optim.AdamW(self._tensors, weight_decay=0)

    def __iter__(self) -> Iterator[float]:
        """Do all steps; yields the mean cross-entropy of the answer tokens, in nats, before each."""
        while self.step < self.tuning.steps:
            yield self.advance()

    def advance(self) -> float:
        """Do one step; returns the loss before it."""
        draw = torch.Generator().manual_seed(self.tuning.seed * 1_000_003 + self.step)
        dropped_RL = torch.rand(self.rows.own_RL.shape, generator=draw) < self.tuning.dropout
        loss, gradient = answer_gradient(self.engine, self.memory, self.rows.hiding(dropped_RL))
        slopes = [*gradient.keys, *gradient.values]
        norm = math.hypot(*(float(torch.linalg.vector_norm(slope)) for slope in slopes))
        for tensor, slope in zip(self._tensors, slopes, strict=True):
            tensor.grad = slope * min(1.0, _CLIP / (norm + 1e-6))
        self._optimizer.param_groups[0]["lr"] = self.tuning.rate(self.step)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.step += 1
        return loss
