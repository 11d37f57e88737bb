"""The one seam to the network: what an engine does for everything above it.

Above this folder nobody knows how a pass is laid out, and no torch module is touched. A new engine is one class here
and one line in `registry.py` (docs/architecture.md).
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from deepthink_cli.engine.packing import PackedRow
from deepthink_cli.memory import Memory
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import TokenizedQuery, common_length
from deepthink_cli.provenance import ModelIdentity

Sums = list[list[float]]  # a log-probability in nats for every candidate of every query


@dataclass(frozen=True, eq=False)
class Reading:
    """Tokens to be read at positions `start` onward, after a history if there is one (Eq. 2 and 3)."""

    token_ids: tuple[int, ...]
    history: Memory | None = None
    start: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class ScoringPlan:
    """Queries prepared for scoring against any number of memories.

    `rows` are what an engine feeds, longest first; empty for an engine that works from the queries.
    """

    queries: tuple[TokenizedQuery, ...]
    rows: tuple[PackedRow, ...] = ()

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """The tokens with which every query begins (the template's own words): they can be read once."""
        return shared_prefix([query.prefix for query in self.queries])

    @cached_property
    def longest(self) -> TokenizedQuery | None:
        """The query with the most tokens."""
        return max(self.queries, key=lambda query: query.longest, default=None)


class Engine(Protocol):
    """Reads demonstrations and scores queries with one frozen causal language model.

    `read` and `score` are what an engine must do; a class that inherits from this one gets the rest. Calls from
    several threads wait for one another.
    """

    @property
    @abstractmethod
    def identity(self) -> ModelIdentity:
        """The model that memories of this engine record."""

    @property
    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """How many tokens the model holds."""

    @property
    @abstractmethod
    def description(self) -> str:
        """The engine in one line: its name, and why this one."""

    @abstractmethod
    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        """The present of every reading, in order (Eq. 2): keys and values of its tokens, in float32.

        With a history every layer attends to [history ; present] (Eq. 3): all tokens of the history, and causally to
        the present. Raises InputError for a reading that is too long for the model or has unknown tokens, and
        DeepThinkError for values that are not finite.
        """

    @abstractmethod
    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        """For each memory, the log-probability of every candidate of every query after it (Eq. 1 and 6), in nats.

        A candidate's is the sum over its tokens, computed in float32; the query stands at positions L onward.
        """

    @property
    def device(self) -> str:
        """Where the model computes."""
        return "cpu"

    @property
    def notice(self) -> str | None:
        """What users are told when this engine was chosen, unless they ask for silence; None if nothing."""
        return None

    @property
    def warning(self) -> str | None:
        """What users are told in any case: an error that prevented a faster engine."""
        return None

    @property
    def tokens_together(self) -> int:
        """Readings of up to this many tokens are fastest together, in one call of `read`."""
        return 1

    def tokens_held(self, copies: int) -> int:
        """For how many tokens, all memories together, float32 memories fit the device `copies` times."""
        return sys.maxsize // copies

    def plan(self, queries: Sequence[TokenizedQuery]) -> ScoringPlan:
        """The part of scoring that no memory affects; raises InputError for tokens unknown to the model."""
        return ScoringPlan(tuple(queries))

    def place(self, memory: Memory) -> Memory:
        """A copy of a memory that scores faster; made once instead of in every pass."""
        return memory

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise InputError, prefixed with `where`, for a token id that the model does not know."""
        return None

    def check_memory(self, memory: Memory, name: str = "this memory") -> None:
        """Raise InputError unless the memory has this model's layers, heads and sizes."""
        return None

    def advice(self) -> str:
        """What a model that computes NaN or infinity has most likely run into, and the way out."""
        return "use --dtype float32, and look for NaN in the weights"


def shared_prefix(prefixes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The leading tokens of all prefixes, but for each one's last, which its answers are read after."""
    if len(prefixes) < 2:
        return ()
    low, high = min(prefixes), max(prefixes)
    most = min(map(len, prefixes)) - 1
    return low[: min(common_length(low, high), most)]
