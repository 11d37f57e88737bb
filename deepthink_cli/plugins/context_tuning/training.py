"""The training of Context Tuning: rows that do not see their own tokens, and steps of AdamW.

Gradients of the answers' loss are by a memory's keys and values, with frozen weights and hidden tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine, Reading
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.budget import attention_heads, head_bytes, widest
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.errors import DeepThinkError, InputError, Problem, option, ran_out_of_memory
from deepthink_cli.memory import PARTS, Memory
from deepthink_cli.method import Method
from deepthink_cli.model.families import has_alibi
from deepthink_cli.model.tokens import ordinary_ids, tokenize_queries
from deepthink_cli.plugins.context_tuning.technique import FEWEST, ContextTuning, own_tokens
from deepthink_cli.provenance import Provenance, TokenizedDemonstrations

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class TrainingRow:
    """A query after a memory, with the answer whose loss is computed.

    `ids` are the tokens of the query and its answer, at positions L onward; the last `answer` tokens are the answer.
    `hidden` (L,) is True at the tokens of the memory that the row does not attend to.
    """

    ids: tuple[int, ...]
    answer: int
    hidden: Tensor

    def __len__(self) -> int:
        """The number of tokens that the network reads: all but the last."""
        return len(self.ids) - 1


def training_rows(
    tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations, needed_by: Problem
) -> list[TrainingRow]:
    """The demonstrations as queries; raises InputError, about the option `needed_by`, as `own_tokens` does.

    The demonstrations with the same input are hidden from a row, or none if there are fewer than four inputs.
    """
    own_RL = own_tokens(tokenizer, demonstrations, needed_by)
    groups_R = torch.tensor(demonstrations.groups)
    if len(set(demonstrations.groups)) < FEWEST:
        own_RL = torch.zeros_like(own_RL)
    rows = []
    for number, (example, group) in enumerate(
        zip(demonstrations.examples, demonstrations.groups, strict=True), start=1
    ):
        candidates = demonstrations.labels or (example.label,)
        query = Query(example.text, candidates, where=f"demonstration {number}")
        (tokenized,) = tokenize_queries(tokenizer, demonstrations, [query])
        answer = tokenized.answers[candidates.index(example.label)]
        rows.append(TrainingRow(tokenized.prefix + answer, len(answer), own_RL[groups_R == group].any(0)))
    return rows


_ROWS = 8  # the most rows of a pass: fixed, so that rounding does not depend on the free memory
_PROBED, _QUERY = 12, 4  # tokens of the probe's memory and query
_TOLERANCE = 1e-3  # the relative change of a loss that must not depend on hidden tokens


def answer_gradient(engine: BatchedEngine, memory: Memory, rows: Sequence[TrainingRow]) -> tuple[float, Memory]:
    """The mean cross-entropy of all answer tokens in nats, and its gradient by every key and value, in float32.

    All rows are one batch; as many rows as the device holds run at a time. Raises DeepThinkError for a loss or a
    gradient that is not finite, and InputError if no gradient reaches a part of the memory.
    """
    model, tokens, layers = engine.model, sum(row.answer for row in rows), len(memory.keys)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (*memory.keys, *memory.values)]
    trained = replace(memory, keys=tuple(leaves[:layers]), values=tuple(leaves[layers:]))
    gradients = [torch.zeros_like(leaf) for leaf in leaves]
    loss, start, most = 0.0, 0, min(_ROWS, _fitting(model, memory, max(map(len, rows)), engine.free))
    while start < len(rows):
        part = rows[start : start + most]
        try:
            part_loss, part_gradients = _part_gradient(model, trained, part, leaves, tokens)
        except Exception as error:
            if len(part) == 1 or not ran_out_of_memory(error):
                raise
            most = len(part) // 2
            continue
        loss, start = loss + part_loss, start + len(part)
        for gradient, addend in zip(gradients, part_gradients, strict=True):
            gradient.add_(addend)
    total = replace(memory, keys=tuple(gradients[:layers]), values=tuple(gradients[layers:]))
    if place := total.not_finite():
        raise DeepThinkError(f"the gradient of {place} is NaN or infinite: {model.identity.overflow}")
    return loss, total


def _fitting(model: LanguageModel, memory: Memory, width: int, free: int) -> int:
    """The number of rows of `width` tokens whose gradient by a memory fits `free` bytes; at least 1.

    For its backward pass, every layer keeps the keys and values of each row, also repeated for all heads, its attention
    weights and its activations.
    """
    length, itemsize, heads = memory.length + width, model.dtype.itemsize, attention_heads(model, memory)
    keys = sum(itemsize * length * (tensor.shape[0] + heads) * tensor.shape[2] for tensor in memory.keys)
    attention = len(memory.keys) * heads * width * length * (4 + 2 * itemsize)
    activations = len(memory.keys) * 16 * width * widest(model) * itemsize
    return max(1, free // (2 * keys + attention + activations + width * head_bytes(model)))


def trainable(engine: Engine) -> BatchedEngine:
    """The engine; raises InputError unless it gives gradients, and tokens of a memory can be hidden from a row.

    The loss after a short memory must not change with its hidden tokens, and must change with its visible tokens.
    """
    if not isinstance(engine, BatchedEngine):
        raise InputError(f"{engine.description}: gives no gradients; use {option('engine')} packed or padded")
    model = engine.model
    if has_alibi(model.network.config.get_text_config(decoder=True)):
        raise InputError(
            f"{model.identity.architecture} counts the distances of ALiBi along its attention mask: hiding "
            "demonstrations from a query would move others, which ct-kv must not; choose another model"
        )
    ids = tuple(ordinary_ids(model.tokenizer, model.known_tokens, _PROBED + _QUERY))
    hidden = torch.arange(_PROBED) < _PROBED // 2
    memory, query = model.read(ids[:_PROBED]), TrainingRow(ids[_PROBED:], 1, hidden)
    plain, other, moved = (
        float(_loss(model, changed, [query])) for changed in (memory, _noisy(memory, hidden), _noisy(memory, ~hidden))
    )
    if abs(other - plain) > _TOLERANCE * abs(plain) or moved == plain:
        raise InputError(
            f"{model.identity.architecture} does not apply an attention mask to its past: demonstrations cannot be "
            "hidden from a query, which ct-kv needs; choose another model"
        )
    return engine


def _part_gradient(
    model: LanguageModel, memory: Memory, rows: Sequence[TrainingRow], leaves: Sequence[Tensor], tokens: int
) -> tuple[float, tuple[Tensor, ...]]:
    """The part of the loss and of its gradient that comes from some of the rows."""
    with model.lock, torch.enable_grad():
        loss = _loss(model, memory, rows) / tokens
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    unused = [number for number, gradient in enumerate(gradients) if gradient is None]
    if unused:
        part, layer = divmod(unused[0], len(memory.keys))
        raise InputError(
            f"{model.identity.architecture}: no gradient reaches layer {layer}'s {PARTS[part]}, which ct-kv needs; "
            "choose another model"
        )
    return float(loss.detach()), gradients


def _loss(model: LanguageModel, memory: Memory, rows: Sequence[TrainingRow]) -> Tensor:
    """The summed cross-entropy of the rows' answers, in one pass, padded on the right."""
    width = max(map(len, rows))
    ids_RS = torch.tensor([row.ids[:-1] + (0,) * (width - len(row)) for row in rows], device=model.device)
    hidden_RL = torch.stack([row.hidden for row in rows]).to(model.device)
    inputs = model.inputs(ids_RS, memory.as_cache(model.dtype, rows=len(rows)), memory.length)
    places = [n * width + place for n, row in enumerate(rows) for place in range(len(row) - row.answer, len(row))]
    places_M = torch.tensor(places, device=model.device)
    answers_M = torch.tensor([token for row in rows for token in row.ids[-row.answer :]], device=model.device)
    mask_RK = (~F.pad(hidden_RL, (0, width))).long()
    with model.lock:
        return -model.log_probabilities(
            {**inputs, "attention_mask": mask_RK}, places_M, torch.arange(len(places), device=model.device), answers_M
        ).sum()


def _noisy(memory: Memory, tokens: Tensor) -> Memory:
    """The memory with other keys and values at some of its tokens (L,)."""
    changed = memory.copy()
    for tensor in (*changed.keys, *changed.values):
        tensor[:, tokens.to(tensor.device)] = 1 - tensor[:, tokens.to(tensor.device)]
    return changed


_CLIP = 1.0  # most of the gradient's norm over all tensors


class ContextTraining:
    """The training of one memory."""

    def __init__(self, engine: Engine, demonstrations: TokenizedDemonstrations, tuning: ContextTuning) -> None:
        self.engine, self.tuning = trainable(engine), tuning
        self.rows = training_rows(engine.tokenizer, demonstrations, tuning.option)
        (first,) = engine.read([Reading(demonstrations.token_ids)])
        provenance = Provenance(engine.identity, demonstrations, Method(iterations=1), technique=tuning.recorded())
        self.memory: Memory = replace(first.copy(), provenance=provenance)
        self._tensors = [*self.memory.keys, *self.memory.values]
        self._optimizer = torch.optim.AdamW(self._tensors, weight_decay=0)

    def __iter__(self) -> Iterator[float]:
        """Do all steps; yields the mean cross-entropy of the answer tokens, in nats, before each."""
        return map(self._advance, range(self.tuning.steps))

    def _advance(self, step: int) -> float:
        draw = torch.Generator().manual_seed(self.tuning.seed * 1_000_003 + step)
        dropped_RL = torch.rand((len(self.rows), self.memory.length), generator=draw) < self.tuning.dropout
        pairs = zip(self.rows, dropped_RL, strict=True)
        rows = [replace(row, hidden=row.hidden | dropped_L) for row, dropped_L in pairs]
        loss, gradient = answer_gradient(self.engine, self.memory, rows)
        slopes = [*gradient.keys, *gradient.values]
        norm = math.hypot(*(float(torch.linalg.vector_norm(slope)) for slope in slopes))
        for tensor, slope in zip(self._tensors, slopes, strict=True):
            tensor.grad = slope * min(1.0, _CLIP / (norm + 1e-6))
        self._optimizer.param_groups[0]["lr"] = self.tuning.rate(step)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss
