"""An engine that passes every call to another engine: the base of engines that change a part of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from deepthink_cli.engine.base import Engine, Likelihoods, Observation, Past, Reading, ScoringPlan, Sums, TrainingRow
from deepthink_cli.engine.decoding import Decoding, NewToken, Prompt
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from deepthink_cli.memory import Memory


class DelegatingEngine(Engine):
    """Calls `inner` for everything; a subclass overrides some methods."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @property
    def identity(self) -> ModelIdentity:
        """The model that memories of this engine record."""
        return self.inner.identity

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        return self.inner.tokenizer

    @property
    def limits(self) -> Limits:
        """The length limits of the model."""
        return self.inner.limits

    @property
    def description(self) -> str:
        """The engine in one line."""
        return self.inner.description

    @property
    def device(self) -> str:
        """The device that the model computes on."""
        return self.inner.device

    @property
    def notice(self) -> str | None:
        """A note for users about the choice of this engine, hidden by --quiet, or None."""
        return self.inner.notice

    @property
    def warning(self) -> str | None:
        """A warning, always shown, of an error that prevented a faster engine, or None."""
        return self.inner.warning

    @property
    def tokens_together(self) -> int:
        """The number of tokens up to which several readings are fastest in a single call of `read`."""
        return self.inner.tokens_together

    def tokens_held(self, copies: int) -> int:
        """The total number of tokens whose float32 memories fit the device `copies` times."""
        return self.inner.tokens_held(copies)

    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        """The present of every reading, in order (Eq. 2 and 3)."""
        return self.inner.read(readings)

    def plan(self, queries: Sequence[TokenizedQuery]) -> ScoringPlan:
        """The part of scoring that is the same for all memories."""
        return self.inner.plan(queries)

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        """For each memory, the log-probability of every candidate of every query after it, in nats."""
        return self.inner.score(memories, plan)

    def score_after(self, pasts: Sequence[Past], plan: ScoringPlan) -> Sums:
        """The log-probability of every candidate of each query after its own past, in nats."""
        return self.inner.score_after(pasts, plan)

    def observe(self, memory: Memory | None, plan: ScoringPlan, every_token: bool = False) -> list[Observation]:
        """Scores and hidden states of every query after a memory, or without a memory."""
        return self.inner.observe(memory, plan, every_token)

    def likelihoods(self, memory: Memory | None, plan: ScoringPlan) -> Likelihoods:
        """The scores of every query after a memory, or without one, and whether greedy decoding writes a candidate."""
        return self.inner.likelihoods(memory, plan)

    def read_adding(
        self, token_ids: Sequence[int], places: Sequence[int], added: Sequence[Tensor] | None
    ) -> tuple[Memory, Tensor]:
        """The present of tokens with vectors added to each layer's attention output, and these sums."""
        return self.inner.read_adding(token_ids, places, added)

    def gradient(self, memory: Memory, rows: Sequence[TrainingRow]) -> tuple[float, Memory]:
        """The mean loss of the rows' answer tokens in nats, and its gradient by every key and value."""
        return self.inner.gradient(memory, rows)

    def generate(self, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[NewToken]:
        """Yield the tokens that continue every prompt after a memory, or without a memory."""
        return self.inner.generate(memory, prompts, decoding)

    def check_hiding(self) -> None:
        """Raise InputError if tokens of a memory cannot be hidden from a row of `gradient`."""
        self.inner.check_hiding()

    def place(self, memory: Memory) -> Memory:
        """A copy of a memory that scores faster."""
        return self.inner.place(memory)

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise InputError, prefixed with `where`, for a token id that the model does not have."""
        self.inner.check_ids(ids, where)

    def check_memory(self, memory: Memory, name: str = "this memory") -> None:
        """Raise InputError unless the memory has this model's layers, heads and sizes."""
        self.inner.check_memory(memory, name)

    def advice(self) -> str:
        """The most likely cause of NaN or infinity in this model, and a fix."""
        return self.inner.advice()
