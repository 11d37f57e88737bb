"""Base of engines that run a network over rows of tokens, in passes of bounded size."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import torch

from deepthink_cli.engine.base import Engine, Likelihoods, Observation, Past, Reading, ScoringPlan, Sums
from deepthink_cli.engine.budget import best_tokens, byte_budget
from deepthink_cli.engine.decoding import Decoding, NewToken, Prompt
from deepthink_cli.engine.generating import generate
from deepthink_cli.engine.hooks import adding
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import LogprobRequests, PackedRow, PassScores
from deepthink_cli.errors import InputError, ran_out_of_memory
from deepthink_cli.memory import Memory
from deepthink_cli.model.limits import Limits
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.provenance import ModelIdentity

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

Result = TypeVar("Result")


class Layout(Protocol):
    """Rows laid out for one pass; `starts` are the indices of their first tokens in the whole pass.

    The `requested` log-probabilities are on the network's device.
    """

    starts: list[int]
    requested: LogprobRequests

    def after(self, past: Past, places_M: Tensor) -> AbstractContextManager[dict[str, Any]]:
        """The network's arguments to run the rows after `past`; the outputs of tokens `places_M` will be used."""


class BatchedEngine(Engine):
    """Runs a network in passes of at most `batch_tokens` tokens; a single row always runs.

    `batch_tokens` is halved whenever a pass does not fit the device. `free` is the number of bytes that a pass may
    take. `reason` is the reason why this engine was chosen. Subclasses build the rows and lay them out.
    """

    name: ClassVar[str]
    reads_together: ClassVar[bool] = True  # whether a pass can read several texts

    def __init__(self, model: LanguageModel, reason: str = "", warning: str | None = None) -> None:
        self.model = model
        self.batch_tokens = model.batch_tokens or best_tokens(model)
        self.free = byte_budget(model.device)
        self.reason, self._warning = reason, warning

    @property
    def identity(self) -> ModelIdentity:
        """The identity of the model, as recorded in memories."""
        return self.model.identity

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        return self.model.tokenizer

    @property
    def limits(self) -> Limits:
        """The length limits of the model."""
        return self.model.limits

    @property
    def description(self) -> str:
        """The engine's name and why it was chosen, in one line."""
        return ": ".join(filter(None, [f"{self.name} engine", self.reason]))

    @property
    def device(self) -> str:
        """The device or devices that the model runs on."""
        return str(self.model.device)

    @property
    def warning(self) -> str | None:
        """A warning, always shown, of an error that prevented a faster engine, or None."""
        return self._warning

    @property
    def tokens_together(self) -> int:
        """The number of tokens up to which several readings are fastest in a single call of `read`."""
        return self.batch_tokens

    def tokens_held(self, copies: int) -> int:
        """The total number of tokens whose float32 memories fit the device's free memory `copies` times."""
        return self.free // (copies * self.model.token_bytes)

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

    def advice(self) -> str:
        """The likely cause of NaN or infinite values, and how to avoid them."""
        return self.model.overflow()

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
        if not plan.queries:
            return sums
        if not plan.rows:  # the plan was made by another engine
            plan = self.plan(plan.queries)
        pasts = [self._past(memory, plan.shared) for memory in memories]
        for scored in self._in_passes(memories, plan.rows, lambda rows: list(self.score_pass(pasts, rows))):
            for sums_of_memory, scores in zip(sums, scored, strict=True):
                for (query, candidate), value in scores.summed().items():
                    sums_of_memory[query][candidate] = value
        return sums

    def observe(
        self, memory: Memory | None, plan: ScoringPlan, every_token: bool = False, layers: Sequence[int] = ()
    ) -> list[Observation]:
        """Scores and hidden states of every query after a memory, or without a memory."""
        if not plan.queries:
            return []
        if not plan.rows:
            plan = self.plan(plan.queries)
        past, bounding = self._past(memory, plan.shared), memory or self.model.one_token
        sums = [[0.0] * len(query.answers) for query in plan.queries]
        hidden: dict[int, Tensor] = {}
        for scores, states in self._in_passes(
            [bounding], plan.rows, lambda rows: self.observe_pass(past, rows, every_token, layers)
        ):
            for (query, candidate), value in scores.items():
                sums[query][candidate] = value
            hidden |= states
        return [Observation(tuple(values), hidden[query]) for query, values in enumerate(sums)]

    def likelihoods(self, memory: Memory | None, plan: ScoringPlan) -> Likelihoods:
        """The scores of every query after a memory, or without one, and whether greedy decoding writes a candidate."""
        if not plan.queries:
            return []
        if not plan.rows:
            plan = self.plan(plan.queries)
        results = [[(0.0, False)] * len(query.answers) for query in plan.queries]
        past, bounding = self._past(memory, plan.shared), memory or self.model.one_token
        for scores, others in self._in_passes([bounding], plan.rows, lambda rows: self.likelihood_pass(past, rows)):
            for (query, candidate), value in scores.items():
                results[query][candidate] = (value, others[query, candidate] == 0)
        return results

    def read_adding(
        self, token_ids: Sequence[int], places: Sequence[int], added: Sequence[Tensor] | None
    ) -> tuple[Memory, Tensor]:
        """A reading, in a plain pass, with vectors added to attention outputs at some places, and these outputs."""
        places_P = torch.tensor(list(places), device=self.model.device)
        with torch.inference_mode(), self.model.lock, adding(self.model.network, places_P, added) as outputs:
            present = self.model.read(token_ids)
            return present, torch.stack([each.float().cpu() for each in outputs])

    def generate(self, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[NewToken]:
        """Yield the tokens that continue every prompt after a memory; plain passes of the network in every engine."""
        _refuse_vectors(memory)
        return generate(self.model, memory, prompts, decoding, self.batch_tokens, self.free)

    def _in_passes(
        self, memories: Sequence[Memory], rows: Sequence[PackedRow], run: Callable[[Sequence[PackedRow]], Result]
    ) -> Iterator[Result]:
        """Run all rows after each of the memories, in passes that fit the device; smaller passes if memory runs out.

        The result of a pass is yielded when the next pass has been started, so that a GPU never waits for its use.
        """
        bounds = [self.bounds(memory, max(map(len, rows))) for memory in memories]
        fed, start = list(accumulate(map(len, rows))), 0
        started: list[Result] = []
        while start < len(rows):
            tokens, most = map(min, zip(*bounds, (self.batch_tokens, len(rows)), strict=True))
            stop = _stop(fed, start, tokens, most)
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
    def score_pass(self, pasts: Sequence[Past], rows: Sequence[PackedRow]) -> Iterator[PassScores]:
        """Yield, for each past, the score of every (query, candidate) of the rows, all in one pass."""
        layout = self.layout(rows)
        requested = layout.requested
        for past in pasts:
            with self._after(past, rows, layout, requested.places_M) as inputs:
                log_probabilities_N = self.model.log_probabilities(
                    inputs, requested.places_M, requested.asked_N, requested.tokens_N
                )
            yield requested.pending(log_probabilities_N)

    @torch.inference_mode()
    def likelihood_pass(
        self, past: Past, rows: Sequence[PackedRow]
    ) -> tuple[Mapping[tuple[int, int], float], Mapping[tuple[int, int], float]]:
        """For every (query, candidate) of the rows, the score, and the number of tokens that are not the likeliest."""
        layout = self.layout(rows)
        requested = layout.requested
        with self._after(past, rows, layout, requested.places_M) as inputs:
            log_probabilities_N, likeliest_M = self.model.log_probabilities_and_likeliest(
                inputs, requested.places_M, requested.asked_N, requested.tokens_N
            )
        others_N = likeliest_M[requested.asked_N.to(likeliest_M.device)] != requested.tokens_N.to(likeliest_M.device)
        return requested.summed(log_probabilities_N), requested.summed(others_N)

    @torch.inference_mode()
    def observe_pass(
        self, past: Past, rows: Sequence[PackedRow], every_token: bool, layers: Sequence[int]
    ) -> tuple[Mapping[tuple[int, int], float], dict[int, Tensor]]:
        """The score of every (query, candidate) of the rows, and the hidden states of every query, in one pass."""
        layout = self.layout(rows)
        requested = layout.requested
        ends = {row.query: (start, start + row.first + 1) for row, start in zip(rows, layout.starts, strict=True)}
        spans = {query: range(start if every_token else end - 1, end) for query, (start, end) in ends.items()}
        asked_H = torch.tensor([place for span in spans.values() for place in span], device=self.model.device)
        places_M = torch.cat([requested.places_M, asked_H])
        with self._after(past, rows, layout, places_M) as inputs:
            states, log_probabilities_N = self.model.states_and_log_probabilities(
                inputs, places_M, requested.asked_N, requested.tokens_N, layers
            )
        asked = states[len(requested.places_M) :].float().cpu()
        parts = torch.split(asked, [len(span) for span in spans.values()])
        of_queries = (part if every_token else part[0] for part in parts)
        return requested.summed(log_probabilities_N), dict(zip(spans, of_queries, strict=True))

    @contextmanager
    def _after(
        self, past: Past, rows: Sequence[PackedRow], layout: Layout, places_M: Tensor
    ) -> Iterator[dict[str, Any]]:
        """The arguments to run the rows after `past`; vectors of the past are added where a row's candidates begin."""
        with ExitStack() as stack:
            stack.enter_context(self.model.lock)
            if past and past[0].added:
                ends = [start + row.first for start, row in zip(layout.starts, rows, strict=True)]
                places_R = torch.tensor(ends, device=self.model.device)
                stack.enter_context(adding(self.model.network, places_R, past[0].added))
            yield stack.enter_context(layout.after(past, places_M))

    def _past(self, memory: Memory | None, ids: tuple[int, ...]) -> Past:
        """The memory, and a reading of the tokens with which all queries begin, in the model's dtype."""
        parts = [] if memory is None else [memory]
        if ids:
            parts += self.read([Reading(ids, memory, 0 if memory is None else memory.length)])
        return self.joined(tuple(map(self.place, parts)))

    @abstractmethod
    def rows_of(self, number: int, query: TokenizedQuery) -> Iterable[PackedRow]:
        """The rows that must run to score query `number`."""

    @abstractmethod
    def layout(self, rows: Sequence[PackedRow]) -> Layout:
        """Rows laid out for one pass."""

    @abstractmethod
    def joined(self, past: Past) -> Past:
        """The past in the form that `layout` expects."""

    @abstractmethod
    def bounds(self, memory: Memory, width: int) -> tuple[int, int]:
        """The maximum numbers of tokens and of rows in a pass over this memory, for rows of at most `width` tokens."""

    @abstractmethod
    def read_pass(self, readings: Sequence[Reading]) -> list[Memory]:
        """The present of readings that share a pass."""


def _refuse_vectors(memory: Memory | None) -> None:
    if memory is not None and memory.added:
        raise InputError("this memory was read with vectors, which are added to queries with candidates alone")


def _stop(fed: Sequence[int], start: int, budget: int, most: int) -> int:
    """The end of a pass that starts at row `start`, so that passes are of similar size; `fed` are cumulative tokens."""
    done = fed[start - 1] if start else 0
    left = fed[-1] - done
    share = left / math.ceil(left / budget)
    return max(start + 1, min(start + most, bisect_right(fed, done + share)))
