"""The engine interface, which the rest of the package uses to run the network.

Code outside this folder does not know the layout of a pass and calls no torch module. A new engine is one class here
and one line in `registry.py` (docs/architecture.md).
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Protocol, TypeAlias

from deepthink_cli.engine.decoding import Decoding, NewToken, Prompt
from deepthink_cli.errors import InputError, option
from deepthink_cli.events import Detail, Note, Warn
from deepthink_cli.model.boundary import common_length
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from deepthink_cli.engine.packing import PackedRow
    from deepthink_cli.memory import Memory

Sums = list[list[float]]  # a log-probability in nats for every candidate of every query
Past: TypeAlias = "tuple[Memory, ...]"  # memories that precede a row of a pass, concatenated in this order


@dataclass(frozen=True, eq=False)
class Reading:
    """Tokens to be read at positions `start` onward, after the history, if any (Eq. 2 and 3)."""

    token_ids: tuple[int, ...]
    history: Memory | None = None
    start: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, eq=False)
class Observation:
    """The result of one pass for a query: the log-probability of every candidate in nats, and hidden states.

    `hidden` is the input of the output embedding in float32, on the CPU: at the last token before the candidates (W,),
    or at every token after the common beginning of the plan's queries (S, W). If layers are named, it has the states
    after each of them in its place: (L, W) or (S, L, W). `greedy` says of each candidate whether greedy decoding writes
    it; empty unless that was asked for.
    """

    sums: tuple[float, ...]
    hidden: Tensor
    greedy: tuple[bool, ...] = ()


@dataclass(frozen=True)
class ScoringPlan:
    """Queries prepared for scoring against any number of memories.

    `rows` are the rows that an engine runs, longest first; empty for an engine that uses the queries directly.
    """

    queries: tuple[TokenizedQuery, ...]
    rows: tuple[PackedRow, ...] = ()

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """The tokens with which every query begins (from the template); they need to be read only once."""
        return shared_prefix([query.prefix for query in self.queries])

    @cached_property
    def longest(self) -> TokenizedQuery | None:
        """The query with the most tokens."""
        return max(self.queries, key=lambda query: query.longest, default=None)


class Engine(Protocol):
    """Reads demonstrations and scores queries with one frozen causal language model.

    A subclass must have the first four attributes and implement `read` and `score`; the rest has defaults. `identity`
    is recorded in memories. `description` is the engine's name and why it was chosen, in one line; users are told of it
    by an event of the kind `told`. `device` names the devices that the model runs on. Concurrent calls from several
    threads are serialized.
    """

    identity: ModelIdentity
    tokenizer: PreTrainedTokenizerBase
    limits: Limits
    description: str
    told: type[Detail | Note | Warn] = Detail
    device: str = "cpu"

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

        Log-probabilities are summed over a candidate's tokens, in float32; the query has positions L onward.
        """

    def score_after(self, pasts: Sequence[Past], plan: ScoringPlan) -> Sums:
        """The log-probability of every candidate of query i after `pasts[i]`, in nats.

        The positions of a query follow its past. Queries share passes if their pasts are the same objects.
        """
        places: dict[Past, list[int]] = {}
        for place, past in enumerate(pasts):
            places.setdefault(past, []).append(place)
        found: dict[int, list[float]] = {}
        for (first, *others), of_past in places.items():
            memory = first.followed_by(*others) if others else first
            (sums,) = self.score([memory], self.plan([plan.queries[place] for place in of_past]))
            found |= dict(zip(of_past, sums, strict=True))
        return [found[place] for place in range(len(pasts))]

    def observe(
        self,
        memory: Memory | None,
        plan: ScoringPlan,
        every_token: bool = False,
        layers: Sequence[int] = (),
        greedy: bool = False,
    ) -> list[Observation]:
        """Scores and hidden states of every query after a memory, or without a memory.

        The hidden state is at the token that predicts the label; with `every_token`, at each of the query's own tokens.
        It is the input of the output embedding, or the state after each of the `layers`, numbered from 1; after the
        last layer both are the same. With `greedy`, says whether greedy decoding writes a candidate: each of its tokens
        is the most probable token at its place, by the same logits. Raises InputError if the engine gives no hidden
        states.
        """
        raise InputError(f"{self.description}: gives no hidden states; use {option('engine')} packed or padded")

    def generate(self, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[NewToken]:
        """Yield the tokens that continue every prompt after a memory, or without a memory, one by one.

        A prompt has positions L onward. Tokens of different prompts may alternate. The tokens of a prompt are in order,
        and the last one has the reason of the text's end. Raises InputError before the first token if a prompt and its
        new tokens do not fit the model, or if the engine cannot generate.
        """
        raise InputError(f"{self.description}: does not generate; use {option('engine')} packed or padded")

    @property
    def tokens_together(self) -> int:
        """The number of tokens up to which several readings are fastest in a single call of `read`."""
        return 1

    def tokens_held(self, copies: int) -> int:
        """The total number of tokens whose float32 memories fit the device `copies` times."""
        return sys.maxsize // copies

    def plan(self, queries: Sequence[TokenizedQuery]) -> ScoringPlan:
        """Prepare queries, independently of any memory; raises InputError for tokens unknown to the model."""
        return ScoringPlan(tuple(queries))

    def place(self, memory: Memory) -> Memory:
        """A copy of a memory on the model's devices and in its dtype, to avoid conversion in every pass."""
        return memory

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise InputError, prefixed with `where`, for a token id that the model does not know."""
        return None

    def check_memory(self, memory: Memory, name: str = "this memory") -> None:
        """Raise InputError unless the memory has this model's layers, heads and sizes, and the engine can use it.

        An engine that does not override `observe` cannot use a correction by hidden states.
        """
        if memory.head is not None and type(self).observe is Engine.observe:
            raise InputError(
                f"{self.description}: gives no hidden states, by which {name} labels; use {option('engine')} packed or "
                f"padded, or remove its correction with deepthink calibrate MEMORY {option('calibrate')} none"
            )


def read_texts(
    engine: Engine,
    sets: Sequence[tuple[tuple[int, ...], ...]],
    histories: Sequence[Memory] = (),
    starts: Sequence[int] = (),
) -> list[Memory]:
    """The present of each set of texts, given as token ids: the presents of its texts, concatenated.

    A text is read without the others of its set, and attends only to its own part of the set's history. If the set
    starts at 0, so does the text; otherwise its positions follow its part of the history. Sets that are the same are
    read once: without histories they share the present, otherwise each gets a copy. Raises as `Engine.read`.
    """
    same: dict[object, list[int]] = {}
    for number, texts in enumerate(sets):
        after = (id(histories[number].keys), starts[number]) if histories else None
        same.setdefault((texts, after), []).append(number)
    readings = []
    for number, *_ in same.values():
        for ids, end in zip(sets[number], accumulate(map(len, sets[number])), strict=True):
            history = histories[number].tokens(end - len(ids), end) if histories else None
            readings.append(Reading(ids, history, len(ids) if histories and starts[number] else 0))
    parts = iter(engine.read(readings))
    presents: dict[int, Memory] = {}
    for numbers in same.values():
        first, *others = islice(parts, len(sets[numbers[0]]))
        present = first.followed_by(*others) if others else first
        presents |= {number: present.copy() if histories and number != numbers[0] else present for number in numbers}
    return [presents[number] for number in range(len(sets))]


def shared_prefix(prefixes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The tokens with which all prefixes begin, without the last token of any prefix, whose output answers need."""
    if len(prefixes) < 2:
        return ()
    low, high = min(prefixes), max(prefixes)
    most = min(map(len, prefixes)) - 1
    return low[: min(common_length(low, high), most)]
