"""The time that the matrix products of scoring take alone: no system can score the same tokens faster.

One real run says how many tokens every layer was given in every pass. Replayed are the products of its linear
layers, each with its own weights and by the kernel that the engine uses, of its attention with the memory, and of the
head on the places that are read; nothing else: no norms, no softmax, no attention of an input to itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from deepthink_cli import score
from deepthink_cli.engine.batches import BatchedEngine
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.engine.products import linear
from deepthink_cli.memory import Memory
from deepthink_cli.model.tokens import TokenizedQuery


@dataclass
class Products:
    """Every product of a run, in its order: `linear` are linear layers and the tokens that they were given.

    `passes` are the tokens of each pass that attend to the memory, and those that do in the last layer; `heads`
    are the network's, and `head` is its output embedding.
    """

    memory: Memory
    heads: int
    head: nn.Linear
    linear: list[tuple[nn.Module, int]] = field(default_factory=list)
    passes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def flops(self) -> int:
        """Floating-point operations: two for every multiplication of the products."""
        linear = sum(2 * tokens * _weight(layer).numel() for layer, tokens in self.linear)
        attending = zip(*self._by_layer(), strict=True)
        tensors = zip(self.memory.keys, self.memory.values, attending, strict=True)
        widths = sum((key.shape[2] + value.shape[2]) * sum(tokens) for key, value, tokens in tensors)
        return linear + 2 * widths * self.memory.length * self.heads

    def _by_layer(self) -> list[list[int]]:
        """For every pass, the tokens of each layer that attend to the memory."""
        before = len(self.memory.keys) - 1
        return [[tokens] * before + [last] for tokens, last in self.passes]

    @torch.inference_mode()
    def seconds(self) -> float:
        """How long all of them take, one after another, on inputs made before the clock starts."""
        shapes = {(tokens, len(_weight(layer))): _weight(layer).dtype for layer, tokens in self.linear}
        given = {shape: torch.randn(shape, dtype=dtype) for shape, dtype in shapes.items()}
        attending = [self._attending(layers) for layers in self._by_layer()] if self.memory.length else []
        started = time.perf_counter()
        for layer, tokens in self.linear:
            hidden = given[tokens, len(_weight(layer))]
            linear(hidden, self.head.weight, self.head.bias) if layer is self.head else layer(hidden)
        for run in attending:
            run()
        return time.perf_counter() - started

    def _attending(self, tokens: list[int]) -> Callable[[], None]:
        """The scores and sums of a pass, head by head: a head's scores (tokens, L) then stay in the caches."""
        groups, length, _ = self.memory.keys[0].shape
        rows = [self.heads // groups * count for count in tokens]  # heads that share keys, folded
        numbers = _weight(self.linear[0][0]).dtype
        keys = [tensor.to(numbers) for tensor in self.memory.keys]
        values = [tensor.to(numbers) for tensor in self.memory.values]
        query = torch.randn(rows[0], keys[0].shape[2], dtype=numbers)
        scores = torch.empty(rows[0], length, dtype=numbers)
        out = torch.empty(rows[0], values[0].shape[2], dtype=numbers)

        def run() -> None:
            for key, value, count in zip(keys, values, rows, strict=True):
                for group in range(groups):
                    torch.mm(query[:count], key[group].T, out=scores[:count])
                    torch.mm(scores[:count], value[group], out=out[:count])

        return run


@dataclass(frozen=True, eq=False)
class _Counted(LanguageModel):
    """A model that adds the tokens of each of its passes, and the product of its head, to `products`."""

    products: Products | None = None
    packed: bool = False

    def log_probabilities(self, inputs: Mapping[str, Any], places: Tensor, asked: Tensor, tokens: Tensor) -> Tensor:
        """As `LanguageModel.log_probabilities`."""
        assert self.products is not None
        fed = inputs["input_ids"].numel()
        scored = super().log_probabilities(inputs, places, asked, tokens)
        self.products.passes.append((fed, len(places) if self.packed else fed))
        self.products.linear.append((self.products.head, len(places)))
        return scored


def products_of(engine: BatchedEngine, memory: Memory, queries: Sequence[TokenizedQuery]) -> Products:
    """The products of scoring the queries against the memory."""
    text: Any = engine.model.network.config.get_text_config(decoder=True)
    network: Any = engine.model.network
    found = Products(memory, text.num_attention_heads, network.get_output_embeddings())
    same = {field.name: getattr(engine.model, field.name) for field in fields(engine.model)}
    model = _Counted(**same, products=found, packed=isinstance(engine, PackedEngine))
    for name in ("one_token", "head"):
        getattr(model, name)  # found by a pass when first asked for

    def noted(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        found.linear.append((module, arguments[0].numel() // arguments[0].shape[-1]))

    with ExitStack() as stack:
        for module in model.network.base_model.modules():
            if isinstance(module, (nn.Linear, Conv1D)):
                stack.callback(module.register_forward_pre_hook(noted).remove)
        score(type(engine)(model), memory, queries)
    return found


def _weight(module: nn.Module) -> Tensor:
    """The weight as (in, out): a view of the module's own."""
    weight = module.get_parameter("weight")
    return weight if isinstance(module, Conv1D) else weight.T
