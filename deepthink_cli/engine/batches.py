"""Base of engines that run a network over rows of tokens, in passes of bounded size."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import torch

from deepthink_cli.engine.base import Engine, Observation, Past, Reading, ScoringPlan, Sums
from deepthink_cli.engine.budget import best_tokens, byte_budget
from deepthink_cli.engine.decoding import Decoding, NewToken, Prompt
from deepthink_cli.engine.generating import generate
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import Candidate, LogprobRequests, PackedRow, SumsOfPass
from deepthink_cli.errors import InputError, ran_out_of_memory
from deepthink_cli.events import Detail, Note, Warn
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")


class Layout(Protocol):
    """Rows laid out for one pass; `starts` are the indices of their first tokens in the whole pass.

    The `requested` log-probabilities are on the network's device.
    """

    starts: list[int]
    requested: LogprobRequests

    def __init__(self, model: LanguageModel, rows: Sequence[PackedRow]) -> None: ...

    def after(self, past: Past, places_M: Tensor) -> AbstractContextManager[dict[str, Any]]:
        """The network's arguments to run the rows after `past`; the outputs of tokens `places_M` will be used."""


class BatchedEngine(Engine):
    """Runs a network in passes of at most `batch_tokens` tokens; a single row always runs.

    `batch_tokens` is halved whenever a pass does not fit the device. `free` is the number of bytes that a pass may
    take. Subclasses build the rows, and their `layout` puts rows into one pass.
    """

    name: ClassVar[str]
    reads_together: ClassVar[bool] = True  # whether a pass can read several texts
    layout: ClassVar[type[Layout]]

    def __init__(self, model: LanguageModel, description: str = "", told: type[Detail | Note | Warn] = Detail) -> None:
        self.model = model
        self.identity, self.tokenizer, self.limits = model.identity, model.tokenizer, model.limits
        self.device, self.description, self.told = str(model.device), description or f"{self.name} engine", told
        self.batch_tokens = model.batch_tokens or best_tokens(model)
        self.free = byte_budget(model.device)

    @property
    def tokens_together(self) -> int:
        """The number of tokens up to which several readings are fastest in a single call of `read`."""
        return self.batch_tokens

    def tokens_held(self, copies: int) -> int:
        """The total number of tokens whose float32 memories fit the device's free memory `copies` times."""
        return self.free // (copies * self.model.one_token.nbytes)

    def plan(self, queries: Sequence[TokenizedQuery]) -> ScoringPlan:
        """The rows that must run to score the queries; raises InputError for tokens unknown to the model."""
        for query in queries:
            self.check_ids(query.ids, query.where or "a query")
        plan = ScoringPlan(tuple(queries))
        shared = plan.shared
        rest = [TokenizedQuery(query.prefix[len(shared) :], query.answers) for query in queries]
        rows = [row for number, query in enumerate(rest) for row in self.rows_of(number, query)]
        return replace(plan, rows=tuple(sorted(rows, key=len, reverse=True)))

    def place(self, memory: Memory) -> Memory:
        """The memory on the devices of the model's layers, in the model's dtype."""
        return memory.to(self.model.layer_devices, self.model.dtype)

    def check_ids(self, ids: Iterable[int], where: str) -> None:
        """Raise InputError, prefixed with `where`, for a token id beyond the model's embedding."""
        self.model.check_ids(ids, where)

    def check_memory(self, memory: Memory, name: str = "this memory") -> None:
        """Raise InputError unless the memory has this model's layers, heads and sizes, and ids of its vocabulary."""
        self.model.check_memory(memory, name)

    def read(self, readings: Sequence[Reading]) -> list[Memory]:
        """The present of every reading, in order; readings that fit `batch_tokens` together share a pass."""
        presents: list[Memory] = []
        while len(presents) < len(readings):
            left = readings[len(presents) :]
            fed = list(accumulate(map(len, left if self.reads_together else left[:1])))
            count = max(1, bisect_right(fed, self.batch_tokens))
            try:
                presents += self.read_pass(left[:count])
            except Exception as error:
                if count == 1 or not ran_out_of_memory(error):
                    raise
                self.batch_tokens = fed[count - 1] // 2
        return presents

    def score(self, memories: Sequence[Memory], plan: ScoringPlan) -> list[Sums]:
        """For each memory, the log-probability of every candidate of every query after it, in nats."""
        sums = [[[0.0] * len(query.answers) for query in plan.queries] for _ in memories]
        plan = plan if plan.rows else self.plan(plan.queries)  # without rows: made by another engine
        pasts = [self._past(memory, plan.shared) for memory in memories]
        for scored in self._in_passes(memories, plan.rows, lambda rows: list(self.score_pass(pasts, rows))):
            for sums_of_memory, scores in zip(sums, scored, strict=True):
                for (query, candidate), value in scores().items():
                    sums_of_memory[query][candidate] = value
        return sums

    def observe(
        self,
        memory: Memory | None,
        plan: ScoringPlan,
        every_token: bool = False,
        layers: Sequence[int] = (),
        greedy: bool = False,
    ) -> list[Observation]:
        """Scores and hidden states of every query after a memory, or without a memory."""
        plan = plan if plan.rows else self.plan(plan.queries)
        past, bounding = self._past(memory, plan.shared), memory or self.model.one_token
        sums, unlikely = dict[Candidate, float](), dict[Candidate, float]()
        hidden: dict[int, Tensor] = {}
        for of_scores, of_tokens, of_queries in self._in_passes(
            [bounding], plan.rows, lambda rows: self.observe_pass(past, rows, every_token, layers, greedy)
        ):
            sums |= of_scores
            unlikely |= of_tokens
            hidden |= of_queries
        found = []
        for number, query in enumerate(plan.queries):
            own = [(number, candidate) for candidate in range(len(query.answers))]
            flags = tuple(unlikely[each] == 0 for each in own) if greedy else ()
            found.append(Observation(tuple(sums[each] for each in own), hidden[number], flags))
        return found

    def generate(self, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[NewToken]:
        """Yield the tokens that continue every prompt after a memory; plain passes of the network in every engine."""
        if memory is not None and memory.changing is not None:
            raise InputError("this memory was read with vectors, which are added to queries with candidates alone")
        return generate(self.model, memory, prompts, decoding, self.batch_tokens, self.free)

    def _in_passes(
        self, memories: Sequence[Memory], rows: Sequence[PackedRow], run: Callable[[Sequence[PackedRow]], Result]
    ) -> Iterator[Result]:
        """Run all rows after each of the memories, in passes that fit the device; smaller passes if memory runs out.

        The result of a pass is yielded when the next pass has been started, so that a GPU never waits for its use.
        """
        bounds = [self.bounds(memory, max(map(len, rows), default=0)) for memory in memories]
        fed, start = list(accumulate(map(len, rows))), 0
        started: list[Result] = []
        while start < len(rows):
            tokens, most = map(min, zip(*bounds, (self.batch_tokens, len(rows)), strict=True))
            # Passes are of similar size.
            done = fed[start - 1] if start else 0
            share = (fed[-1] - done) / math.ceil((fed[-1] - done) / tokens)
            stop = max(start + 1, min(start + most, bisect_right(fed, done + share)))
            try:
                result = run(rows[start:stop])
            except Exception as error:
                if stop - start == 1 or not ran_out_of_memory(error):
                    raise
                self.batch_tokens = (fed[stop - 1] - fed[start] + len(rows[start])) // 2
                continue
            start = stop
            yield from started
            started = [result]
        yield from started

    @torch.inference_mode()
    def score_pass(self, pasts: Sequence[Past], rows: Sequence[PackedRow]) -> Iterator[SumsOfPass]:
        """Yield, for each past, the score of every (query, candidate) of the rows, all in one pass."""
        layout = self.layout(self.model, rows)
        requested = layout.requested
        for past in pasts:
            with self._after(past, rows, layout, requested.places_M) as inputs:
                log_probabilities_N = self.model.log_probabilities(
                    inputs, requested.places_M, requested.asked_N, requested.tokens_N
                )
            yield requested.pending(log_probabilities_N)

    @torch.inference_mode()
    def observe_pass(
        self, past: Past, rows: Sequence[PackedRow], every_token: bool, layers: Sequence[int], greedy: bool
    ) -> tuple[dict[Candidate, float], dict[Candidate, float], dict[int, Tensor]]:
        """The score of every (query, candidate) of the rows, and the hidden states of every query, in one pass.

        Between them, with `greedy`, the number of each candidate's tokens that are not the most probable ones.
        """
        layout = self.layout(self.model, rows)
        requested = layout.requested
        ends = {row.query: (start, start + row.first + 1) for row, start in zip(rows, layout.starts, strict=True)}
        spans = {query: range(start if every_token else end - 1, end) for query, (start, end) in ends.items()}
        asked_H = torch.tensor([place for span in spans.values() for place in span], device=self.model.device)
        places_M = torch.cat([requested.places_M, asked_H])
        with self._after(past, rows, layout, places_M) as inputs:
            states, log_probabilities_N, unlikely_N = self.model.observed(
                inputs, places_M, requested.asked_N, requested.tokens_N, layers, greedy
            )
        unlikely = {} if unlikely_N is None else requested.summed(unlikely_N)
        asked = states[len(requested.places_M) :].float().cpu()
        parts = torch.split(asked, [len(span) for span in spans.values()])
        of_queries = (part if every_token else part[0] for part in parts)
        return requested.summed(log_probabilities_N), unlikely, dict(zip(spans, of_queries, strict=True))

    @contextmanager
    def _after(
        self, past: Past, rows: Sequence[PackedRow], layout: Layout, places_M: Tensor
    ) -> Iterator[dict[str, Any]]:
        """The arguments to run the rows after `past`, whose first memory may change the network."""
        with ExitStack() as stack:
            stack.enter_context(self.model.lock)
            if past and past[0].changing is not None:
                ends = [start + row.first for start, row in zip(layout.starts, rows, strict=True)]
                places_R = torch.tensor(ends, device=self.model.device)
                stack.enter_context(past[0].changing(self.model.network, places_R))
            yield stack.enter_context(layout.after(past, places_M))

    def _past(self, memory: Memory | None, ids: tuple[int, ...]) -> Past:
        """The memory, and a reading of the tokens with which all queries begin, in the model's dtype."""
        parts = [] if memory is None else [memory]
        if ids:
            parts += self.read([Reading(ids, memory, 0 if memory is None else memory.length)])
        return self.joined(tuple(map(self.place, parts)))

    @staticmethod
    @abstractmethod
    def rows_of(number: int, query: TokenizedQuery) -> Iterable[PackedRow]:
        """The rows that must run to score query `number`."""

    def joined(self, past: Past) -> Past:
        """The past in the form that `layout` expects; by default unchanged."""
        return past

    @abstractmethod
    def bounds(self, memory: Memory, width: int) -> tuple[int, int]:
        """The maximum numbers of tokens and of rows in a pass over this memory, for rows of at most `width` tokens."""

    @abstractmethod
    def read_pass(self, readings: Sequence[Reading]) -> list[Memory]:
        """The present of readings that share a pass."""
