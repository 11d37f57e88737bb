"""The packed engine: rows and readings concatenated in one sequence, attending to memories that are never copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.activations import NewGELUActivation

from deepthink_cli.engine.attention import Kept, over_memory
from deepthink_cli.engine.base import Past, Reading, ScoringPlan, Sums
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.budget import tokens_over
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packing import (
    Block,
    Candidate,
    PackedRow,
    blocks,
    network_inputs,
    requests,
    sent,
    sequence,
    tree,
)
from deepthink_cli.engine.reach import Reach
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery

if TYPE_CHECKING:
    from torch import Tensor

_UNBOUNDED = 2**20  # rows of a pass: a packed pass is limited only by tokens


class PackedLayout:
    """Rows concatenated in one sequence of T tokens, each attending to itself and to a memory."""

    def __init__(self, model: LanguageModel, rows: Sequence[PackedRow]) -> None:
        self.model, self.rows = model, rows
        self.starts = [0, *accumulate(len(row) for row in rows)][:-1]
        self.requested, (self.ids_1T, self.depths_1T) = sent(
            model.device,
            requests(rows, self.starts),
            torch.tensor([[token for row in rows for token in row.ids]]),
            torch.tensor([[depth for row in rows for depth in row.depths]]),
        )

    def after(self, past: Past, places_M: Tensor) -> AbstractContextManager[dict[str, Any]]:
        """The network attends to the past through `over_memory` until the block ends."""
        return self._over([Reach(past, self.blocks, places_M)], self.depths_1T + _length(past), places_M)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All rows."""
        return blocks(self.rows)

    def after_own(self, pasts: Sequence[Past], places_M: Tensor) -> AbstractContextManager[dict[str, Any]]:
        """As `after`, with a past for every row; consecutive rows with the same past attend to it together."""
        reaches = []
        for past, group in groupby(range(len(self.rows)), pasts.__getitem__):
            first, *others = group
            rows = self.rows[first : first + 1 + len(others)]
            reaches.append(Reach(past, blocks(rows, self.starts[first])))
        starts = [_length(past) for past, row in zip(pasts, self.rows, strict=True) for _ in row.ids]
        return self._over(reaches, self.depths_1T + torch.tensor(starts, device=self.model.device), places_M)

    @contextmanager
    def _over(self, reaches: Sequence[Reach], positions_1T: Tensor, places_M: Tensor) -> Iterator[dict[str, Any]]:
        network = self.model.network
        with (
            over_memory(network, reaches),
            fused_activations(network.base_model),
            last_feedforward_at(places_M, network.base_model),
        ):
            yield network_inputs(self.ids_1T, positions_1T)


class PackedEngine(BatchedEngine):
    """A query is one row with its candidates as branches; all rows of a pass attend to one memory.

    Requires a network that uses the attention interface of transformers, which the probe checks.
    """

    source = "this project"
    name = "packed"
    layout = PackedLayout

    @staticmethod
    def rows_of(number: int, query: TokenizedQuery) -> Iterable[PackedRow]:
        """One row, with the candidates as branches."""
        return [tree(number, query)]

    @torch.inference_mode()
    def score_after(self, pasts: Sequence[Past], plan: ScoringPlan) -> Sums:
        """The scores of every query after its own past, in passes that all queries share."""
        if not pasts:
            return []

        def scored(rows: Sequence[PackedRow]) -> dict[Candidate, float]:
            layout = PackedLayout(self.model, rows)
            requested = layout.requested
            with self.model.lock, layout.after_own([pasts[row.query] for row in rows], requested.places_M) as inputs:
                log_probabilities_N = self.model.log_probabilities(
                    inputs, requested.places_M, requested.asked_N, requested.tokens_N
                )
            return requested.summed(log_probabilities_N)

        order = {past: number for number, past in enumerate(dict.fromkeys(pasts))}
        rows = sorted(
            (tree(number, query) for number, query in enumerate(plan.queries)),
            key=lambda row: (order[pasts[row.query]], -len(row)),
        )
        first, *others = max(pasts, key=_length)
        longest = first.followed_by(*others) if others else first
        sums = [[0.0] * len(query.answers) for query in plan.queries]
        for scores in self._in_passes([longest], rows, scored):
            for (query, candidate), value in scores.items():
                sums[query][candidate] = value
        return sums

    def bounds(self, memory: Memory, width: int) -> tuple[int, int]:
        """As many tokens as the memory for their attention scores allows, in any number of rows."""
        return min(self.batch_tokens, tokens_over(self.model, memory, width, self.free)), _UNBOUNDED

    @torch.inference_mode()
    def read_pass(self, readings: Sequence[Reading]) -> list[Memory]:
        """The present of every reading, in one pass without a copy or a cache of a history.

        Each reading attends only to its own history and to itself.
        """
        model = self.model
        for reading in readings:
            model.check_reading(reading.token_ids, reading.history, reading.start)
        spans = list(pairwise([0, *accumulate(map(len, readings))]))
        ids = [token for reading in readings for token in reading.token_ids]
        positions = [reading.start + place for reading in readings for place in range(len(reading))]
        ids_and_positions_2T = torch.tensor([ids, positions], device=model.device)
        reaches = [
            Reach(() if reading.history is None else (reading.history,), (sequence(start, len(reading)),))
            for reading, (start, _) in zip(readings, spans, strict=True)
        ]
        kept: Kept = {}
        body: Any = model.network.base_model
        with model.lock, over_memory(model.network, reaches, kept), fused_activations(body):
            body(**network_inputs(ids_and_positions_2T[:1], ids_and_positions_2T[1:]))
        # Copied layer by layer, so that at most one layer exists twice.
        parts: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in spans]
        for layer in sorted(kept):
            keys_GTD, values_GTD = kept.pop(layer)
            for (start, stop), (keys, values) in zip(spans, parts, strict=True):
                keys.append(keys_GTD[:, start:stop].contiguous())
                values.append(values_GTD[:, start:stop].contiguous())
        presents = [Memory(tuple(keys), tuple(values)) for keys, values in parts]
        return [model.checked_present(each, len(reading)) for each, reading in zip(presents, readings, strict=True)]


def _length(past: Past) -> int:
    return sum(memory.length for memory in past)


@contextmanager
def fused_activations(network: nn.Module) -> Iterator[None]:
    """Inside the block, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) is one kernel; equal up to rounding."""
    replaced = [
        (module, name, child)
        for module in network.modules()
        for name, child in module.named_children()
        if isinstance(child, NewGELUActivation)
    ]
    fused = nn.GELU(approximate="tanh")
    try:
        for module, name, _ in replaced:
            setattr(module, name, fused)
        yield
    finally:
        for module, name, child in replaced:
            setattr(module, name, child)


# Names of a block's first and last module.
_BLOCKS = (("mlp", "mlp"), ("fc1", "fc2"))


@contextmanager
def last_feedforward_at(places_M: Tensor, network: nn.Module) -> Iterator[None]:
    """The last feed-forward block gets only tokens `places_M` of a pass, and outputs zeros for all others.

    The block must process every token independently, as all known blocks do. A network without a known block is
    unchanged.
    """
    paths = [(name.split("."), module) for name, module in network.named_modules()]
    # Only modules of the layer itself: experts have modules with the same names, which get a part of the tokens.
    last = {path[-1]: module for path, module in paths if len(path) > 1 and path[-2].isdigit()}
    block = next(((last[enter], last[leave]) for enter, leave in _BLOCKS if enter in last and leave in last), None)
    if block is None:
        yield
        return
    shapes: list[tuple[int, ...]] = []

    def narrowed(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden, *others = arguments
        shapes.append(tuple(hidden.shape[:-1]))
        read_MW = hidden.flatten(0, -2)[places_M.to(hidden.device)]
        return (read_MW.view(*(1,) * (hidden.dim() - 2), *read_MW.shape), *others)

    def widened(_: nn.Module, __: tuple[Tensor, ...], output: Any) -> Any:
        if isinstance(output, tuple):  # followed by a router's scores
            return (widened(_, __, output[0]), *output[1:])
        shape = shapes.pop()
        full = output.new_zeros((*shape, output.shape[-1]))
        full.flatten(0, -2)[places_M.to(output.device)] = output.flatten(0, -2)
        return full

    enter, leave = block
    with ExitStack() as stack:
        stack.callback(enter.register_forward_pre_hook(narrowed).remove)
        stack.callback(leave.register_forward_hook(widened).remove)
        yield
