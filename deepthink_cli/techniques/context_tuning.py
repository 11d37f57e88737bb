"""Context Tuning (CT-KV): a memory that is trained by gradients on its own demonstrations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from deepthink_cli.data.examples import Query
from deepthink_cli.engine.base import Engine, Reading, TrainingRow
from deepthink_cli.errors import InputError
from deepthink_cli.memory import PARTS, Memory
from deepthink_cli.method import Method
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import own_tokens, tokenize_queries
from deepthink_cli.provenance import Provenance, Technique, TokenizedDemonstrations

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


_CLIP = 1.0  # most of the gradient's norm over all tensors
_DECAYS, _EPSILON = (0.9, 0.999), 1e-8  # of AdamW, without weight decay
_MOMENTS = ("first", "second")


@dataclass(frozen=True)
class ContextTuning:
    """The parameters of Context Tuning; the defaults are those of its authors.

    `steps` full-batch steps of AdamW, whose rate falls from `lr` to 0 along a cosine; in each step every row does not
    see a random share `dropout` of the memory's tokens, drawn from `seed`. Every command leaves `seed` at 0, whatever
    seed the demonstrations were drawn with: the same demonstrations make the same memory.
    """

    steps: int = 200
    lr: float = 1e-3
    dropout: float = 0.05
    seed: int = 0

    @property
    def technique(self) -> Technique:
        """What a memory records of it."""
        return Technique("ct-kv", {name: float(value) for name, value in asdict(self).items()})

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.lr * (1 + math.cos(math.pi * step / self.steps)) / 2


class Training:
    """The training of one memory, which can be stopped after any step and continued from its `state`.

    `step` counts the steps done. The same state, model and machine lead to the same bytes.
    """

    def __init__(self, engine: Engine, demonstrations: TokenizedDemonstrations, tuning: ContextTuning) -> None:
        engine.check_hiding()
        self.engine, self.tuning, self.step = engine, tuning, 0
        self.rows = training_rows(engine.tokenizer, demonstrations)
        (first,) = engine.read([Reading(demonstrations.token_ids)])
        provenance = Provenance(engine.identity, demonstrations, Method(iterations=1), technique=tuning.technique)
        self.memory: Memory = replace(first.copy(), provenance=provenance)
        self.moments = {name: [torch.zeros_like(tensor) for tensor in self._tensors] for name in _MOMENTS}

    def __iter__(self) -> Iterator[float]:
        """Do the remaining steps; yields the mean cross-entropy of the answer tokens, in nats, before each."""
        while self.step < self.tuning.steps:
            yield self.advance()

    def advance(self) -> float:
        """Do one step; returns the loss before it."""
        draw = torch.Generator().manual_seed(self.tuning.seed * 1_000_003 + self.step)
        dropped_RL = torch.rand(self.rows.own_RL.shape, generator=draw) < self.tuning.dropout
        loss, gradient = self.engine.gradient(self.memory, self.rows.hiding(dropped_RL))
        gradients = [*gradient.keys, *gradient.values]
        norm = math.hypot(*(float(torch.linalg.vector_norm(tensor)) for tensor in gradients))
        self._move([tensor * min(1.0, _CLIP / (norm + 1e-6)) for tensor in gradients])
        self.step += 1
        return loss

    def state(self) -> dict[str, Tensor]:
        """The tensors from which the training continues, by name, on the CPU."""
        parts = {"memory": self._tensors, **self.moments}
        tensors = {f"{part}.{n}": tensor.cpu() for part, listed in parts.items() for n, tensor in enumerate(listed)}
        return {**tensors, "step": torch.tensor([self.step])}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the state of a training with the same model, demonstrations and parameters."""
        for part, listed in {"memory": self._tensors, **self.moments}.items():
            for number, tensor in enumerate(listed):
                tensor.copy_(state[f"{part}.{number}"])
        self.step = int(state["step"])

    @property
    def _tensors(self) -> list[Tensor]:
        return [tensor for part in PARTS for tensor in getattr(self.memory, part)]

    def _move(self, gradients: list[Tensor]) -> None:
        """One step of AdamW (Loshchilov and Hutter 2019), without weight decay."""
        corrections = [1 - decay ** (self.step + 1) for decay in _DECAYS]
        size = self.tuning.rate(self.step) / corrections[0]
        for tensor, gradient, first, second in zip(self._tensors, gradients, *self.moments.values(), strict=True):
            first.lerp_(gradient, 1 - _DECAYS[0])
            second.mul_(_DECAYS[1]).addcmul_(gradient, gradient, value=1 - _DECAYS[1])
            scale = (second / corrections[1]).sqrt_().add_(_EPSILON)
            tensor.addcdiv_(first, scale, value=-size)
